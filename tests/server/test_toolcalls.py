"""Tool calls: told from the text that holds them, wherever its pieces begin and end."""

import json
import random

import pytest

from soothsay.server.toolcalls import ToolCallReader

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def read(pieces: list[str]) -> tuple[str, list[tuple[str, object]]]:
    """The whole text that is shown, and the calls."""
    reader = ToolCallReader()
    found = [reader.push(piece) for piece in pieces]
    text = "".join(one.text for one in found) + reader.flush()
    return text, [(call.name, json.loads(call.arguments)) for one in found for call in one.calls]


OSLO = ("weather", {"city": "Oslo"})


@pytest.mark.parametrize(
    ("answer", "text", "calls"),
    [
        ("No tool is needed. 1 < 2", "No tool is needed. 1 < 2", []),
        (CALL, "", [OSLO]),
        (f"Let me look.\n{CALL}\n{CALL}\n", "Let me look.", [OSLO, OSLO]),
        (f"{CALL} Done.", " Done.", [OSLO]),
        ('<tool_call>{"name": "now"}</tool_call>', "", [("now", {})]),
        ("<tool_call>{broken}</tool_call>", "<tool_call>{broken}</tool_call>", []),
        ('<tool_call>{"name": 3}</tool_call>', '<tool_call>{"name": 3}</tool_call>', []),
        ('<tool_call>["a"]</tool_call>', '<tool_call>["a"]</tool_call>', []),
        ('Cut short: <tool_call>{"name": "f"', 'Cut short: <tool_call>{"name": "f"', []),
        (f"a <b> <tool_cal {CALL}", "a <b> <tool_cal", [OSLO]),
        ("ends in space \n", "ends in space \n", []),
        ("ends in <tool", "ends in <tool", []),
    ],
)
def test_calls_and_text_are_told_apart(answer: str, text: str, calls: list[object]) -> None:
    dice = random.Random(5)
    assert read([answer]) == (text, calls)
    assert read(list(answer)) == (text, calls)
    for _ in range(30):
        cuts = sorted(dice.choices(range(len(answer) + 1), k=3))
        pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
        assert read(pieces) == (text, calls)


def test_arguments_that_are_no_object_make_no_call() -> None:
    answer = '<tool_call>{"name": "f", "arguments": 3}</tool_call>'
    assert read([answer]) == (answer, [])


def test_text_is_not_held_back_longer_than_it_must_be() -> None:
    reader = ToolCallReader()
    assert reader.push("Hello, ").text == "Hello,"  # white space may precede a call
    assert reader.push("world <").text == " world"
    assert reader.push("b").text == " <b"


def test_each_call_has_an_id_of_its_own() -> None:
    calls = ToolCallReader().push(CALL + CALL).calls
    assert len({call.id for call in calls}) == 2
    assert all(call.id.startswith("call_") for call in calls)
