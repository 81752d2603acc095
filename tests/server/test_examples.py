"""The examples of the documentation that need a server run against one."""

import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from soothsay.hub import MODELS, cached
from soothsay.server.run import load
from tests.server.doubles import serving
from tests.test_readme import blocks

pytestmark = [
    pytest.mark.skipif(cached(MODELS["smollm2-135m"]) is None, reason="the small model is not in the cache"),
    pytest.mark.skipif(find_spec("soothsay._native") is None, reason="the native runtime is not built"),
]

ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(load("smollm2-135m", draft="ngram", gamma=3)) as address:
        yield address


@pytest.mark.parametrize("page", ["README.md", "docs/serving.md"])
def test_client_examples_run(page: str, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = [block for block in blocks(page, "python") if "openai" in block]
    assert found
    for block in found:
        assert ADDRESS in block
        exec(compile(block.replace(ADDRESS, address), page, "exec"), {})
    assert len(capsys.readouterr().out) > 20


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("page", ["README.md", "docs/serving.md"])
def test_curl_examples_run(page: str, address: str) -> None:
    found = [block for block in blocks(page, "sh") if block.startswith("curl")]
    assert found
    for block in found:
        assert ADDRESS in block
        command = block.replace(ADDRESS, address).replace("curl ", "curl --silent --show-error --fail-with-body ")
        run = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        assert len(run.stdout) > 20
