"""From files to engines: the draft must speak the target's tokens, and its lightness changes no word."""

import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

import soothsay
from soothsay import DraftMismatch, Engine, FileCorrupt, ModelNotFound, OptionError, Sampling, TemplateError
from soothsay.model.reference import ReferenceModel
from tests.checkpoints import Kind, Recipe, Words, write_checkpoint

TARGET = Recipe("llama", Kind.Q8_0, vocab_size=264)
DRAFT = Recipe("qwen2", Kind.Q8_0, seed=3, vocab_size=264, layers=1)
SAMPLING = Sampling(max_tokens=24, temperature=0.8, seed=6)
TEXT = "ab ab ab"

Write = Callable[..., Path]


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Write:
    folder = tmp_path_factory.mktemp("worded")

    def written(recipe: Recipe, words: Words | None) -> Path:
        name = f"{recipe.architecture}-{hash((recipe, words))}.gguf"
        return folder / name if (folder / name).exists() else write_checkpoint(folder / name, recipe, words)

    return written


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOOTHSAY_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def compiled() -> None:
    if find_spec("soothsay._native") is None:
        pytest.skip("the compiled runtime is not built")


@pytest.fixture
def no_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python takes a module whose entry is None for one that is not there."""
    monkeypatch.setitem(sys.modules, "soothsay._native", None)


@pytest.mark.usefixtures("compiled")
def test_the_lightness_of_a_draft_model_changes_no_word(write: Write, cache: Path) -> None:
    target, draft = write(TARGET, Words()), write(DRAFT, Words())
    wanted = Engine(target, draft="none").generate(TEXT, SAMPLING)
    for top_k in (1, 32, None):
        for requantise in (True, False):
            engine = Engine(target, draft=draft, draft_top_k=top_k, draft_requantise=requantise, threads=1, gamma=4)
            answer = engine.generate(TEXT, SAMPLING)
            assert (answer.tokens, answer.text) == (wanted.tokens, wanted.text)
            assert answer.stats.drafted > 0
    assert len(list((cache / "requantised").iterdir())) == 1  # searched for once


@pytest.mark.usefixtures("compiled")
def test_a_model_drafts_for_itself_and_is_always_right(write: Write) -> None:
    path = write(TARGET, Words())
    stats = Engine(path, draft=path, gamma=4, draft_requantise=False).generate(TEXT, Sampling(max_tokens=21)).stats
    assert (stats.accepted, stats.steps) == (stats.drafted, 5)


@pytest.mark.usefixtures("compiled")
def test_a_model_in_4_bits_drafts_for_itself(write: Write, cache: Path) -> None:
    path = write(TARGET, Words())
    wanted = Engine(path, draft="none").generate(TEXT, SAMPLING)
    answer = Engine(path, draft="self", gamma=4).generate(TEXT, SAMPLING)
    assert answer.tokens == wanted.tokens
    assert answer.stats.accepted > 0
    assert len(list((cache / "requantised").iterdir())) == 1


@pytest.mark.parametrize(("kind", "requantise"), [(Kind.Q4_0, True), (Kind.Q8_0, False)])
def test_a_model_that_gets_no_lighter_does_not_draft_for_itself(write: Write, kind: Kind, requantise: bool) -> None:
    path = write(Recipe("llama", kind, vocab_size=264), Words())
    with pytest.raises(OptionError, match="draft is 'self', but the model's own weights cannot be made lighter"):
        Engine(path, draft="self", draft_requantise=requantise)


@pytest.mark.parametrize("draft", ["auto", "ngram", "draft"])
def test_the_controller_changes_no_word(write: Write, cache: Path, draft: str) -> None:
    target = write(TARGET, Words())
    wanted = Engine(target, draft="none").generate(TEXT, SAMPLING)
    engine = Engine(target, draft=write(DRAFT, Words()) if draft == "draft" else draft, gamma="auto")
    assert engine.generate(TEXT, SAMPLING).tokens == wanted.tokens
    assert (cache / "costs.json").is_file()


def test_a_draft_model_with_other_tokens_is_refused_with_the_first_difference(write: Write) -> None:
    stranger = write(DRAFT, Words(special=("<|end|>",)))
    with pytest.raises(DraftMismatch, match=r"id 257 is '<\|im_end\|>' in one and '<\|end\|>' in the other"):
        Engine(write(TARGET, Words()), draft=stranger)


@pytest.mark.parametrize(("target_size", "draft_size"), [(264, 272), (272, 264)])
def test_paddings_may_differ(write: Write, target_size: int, draft_size: int) -> None:
    target = write(Recipe("llama", Kind.Q8_0, vocab_size=target_size), Words(size=target_size))
    draft = write(Recipe("llama", Kind.Q8_0, seed=1, vocab_size=draft_size, layers=1), Words(size=draft_size))
    sampling = Sampling(max_tokens=40, temperature=1.5, seed=1)
    wanted = Engine(target, draft="none").generate(TEXT, sampling)
    assert Engine(target, draft=draft, draft_top_k=None).generate(TEXT, sampling).tokens == wanted.tokens


def test_without_the_compiled_runtime_it_warns_and_works(write: Write, no_native: None) -> None:
    target, draft = write(TARGET, Words()), write(DRAFT, Words())
    with pytest.warns(UserWarning, match="compiled runtime is missing: running the NumPy reference") as warned:
        engine = Engine(target, draft=draft)
    assert [warning.filename for warning in warned] == [__file__]
    assert isinstance(engine._model, ReferenceModel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        wanted = Engine(target, draft="none").generate(TEXT, SAMPLING)
        with pytest.raises(OptionError, match="threads is 2; without the compiled runtime"):
            Engine(target, threads=2)
    assert engine.generate(TEXT, SAMPLING).tokens == wanted.tokens


def test_a_package_that_was_installed_without_its_extension(write: Write, tmp_path: Path) -> None:
    """Not a stand-in for a missing module but a missing file: Python words that failure in another way."""
    package = Path(soothsay.__file__).parent
    shutil.copytree(package, tmp_path / "soothsay", ignore=shutil.ignore_patterns("_native*", "__pycache__"))
    code = (  # without the finder of an editable install, which knows where the extension was built
        "import sys\n"
        "sys.meta_path = [finder for finder in sys.meta_path if isinstance(finder, type)]\n"
        "import soothsay; soothsay.Engine(sys.argv[1]).generate([1, 2])"
    )
    command = [sys.executable, "-c", code, str(write(TARGET, Words()))]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "compiled runtime is missing" in run.stderr
    assert "reached the model's context of 64 tokens" in run.stderr  # it ran, from the first token to the last


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("threads", [0, -1, 1025, 1.5, True, ""])
def test_threads_out_of_range(write: Write, threads: int) -> None:
    with pytest.raises(OptionError, match="it must be a whole number from 1 to 1024"):
        Engine(write(TARGET, Words()), threads=threads)


def test_a_model_without_a_template_takes_raw_text(write: Write) -> None:
    engine = Engine(write(TARGET, Words(template=None)))
    with pytest.raises(TemplateError, match="no chat template; give it raw text"):
        engine.generate("ab")
    assert engine.generate("ab ab", Sampling(max_tokens=3), raw=True).stats.prompt_tokens == 3


def test_files_that_cannot_be_used(write: Write, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="nowhere"):
        Engine("nowhere.gguf")
    with pytest.raises(ModelNotFound, match="nowhere"):
        Engine(write(TARGET, Words()), draft="nowhere.gguf")
    with pytest.raises(FileCorrupt, match="tokenizer"):
        Engine(write(TARGET, None))
