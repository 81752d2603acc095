"""Help is there at once: nothing heavy is loaded before a verb has its options."""

import subprocess
import sys

import pytest

HEAVY = {"numpy", "scipy", "gguf", "tokenizers", "jinja2", "soothsay.engine", "soothsay._native", "soothsay.bench.run"}
CODE = """
import sys
from soothsay.cli import main
try:
    main()
finally:
    print(*sys.modules)
"""


@pytest.mark.parametrize(
    "arguments", ["--help", "generate --help", "audit --help", "trace show --help", "bench run --help"]
)
def test_nothing_heavy_is_loaded_for_help(arguments: str) -> None:
    run = subprocess.run([sys.executable, "-c", CODE, *arguments.split()], capture_output=True, text=True, check=True)
    *shown, modules = run.stdout.splitlines()
    assert "Usage: " in shown[0]
    assert set(modules.split()) & HEAVY == set()


@pytest.mark.parametrize("arguments", ["bench", "bench cost --rowz 1", "nonsense"])
def test_a_wrong_verb_or_option_is_a_usage_error(arguments: str) -> None:
    run = subprocess.run([sys.executable, "-c", CODE, *arguments.split()], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr
