"""What the OpenAPI description allows, and much that it does not, never makes the server fail."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from tests.server.doubles import parrot_service, serving

OPERATIONS = [
    *("POST /v1/chat/completions", "POST /v1/completions", "POST /tokenize", "POST /detokenize"),
    *("GET /v1/models", "GET /v1/models/{name}", "GET /figures", "GET /health", "GET /ready", "GET /metrics"),
]


@pytest.fixture(scope="module")
def description() -> Iterator[schemathesis.BaseSchema]:
    with serving(parrot_service("Hello.")) as address:
        yield schemathesis.openapi.from_url(f"{address}/openapi.json")


def test_every_endpoint_is_described(description: schemathesis.BaseSchema) -> None:
    found = [
        f"{method.upper()} {path}" for path, methods in description.raw_schema["paths"].items() for method in methods
    ]
    assert sorted(found) == sorted(OPERATIONS)


BOTH = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
"""A request as described, and one that is wrong somewhere; only a body can be."""


@pytest.mark.parametrize(("label", "mode"), [(op, mode) for op in OPERATIONS for mode in BOTH[: 1 + ("POST" in op)]])
def test_no_request_makes_the_server_fail(
    description: schemathesis.BaseSchema, label: str, mode: GenerationMode
) -> None:
    method, path = label.split()
    operation = description[path][method]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=30, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    def run(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(checks=[not_a_server_error])

    run()
