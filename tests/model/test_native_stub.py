"""The stub that type checkers read names what the compiled module has, and nothing else."""

import ast
from pathlib import Path

from soothsay import _native

STUB = Path(__file__).parents[2] / "src/soothsay/_native.pyi"


def public(names: object) -> set[str]:
    return {name for name in dir(names) if not name.startswith("_")}


def named(nodes: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """The functions and classes among the nodes, with their bodies."""
    return {node.name: node.body for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_the_stub_is_the_module() -> None:
    stub = named(ast.parse(STUB.read_text()).body)
    assert set(stub) == public(_native)
    for name, body in stub.items():
        if isinstance(getattr(_native, name), type):
            assert {method for method in named(body) if method != "__init__"} == public(getattr(_native, name)), name
