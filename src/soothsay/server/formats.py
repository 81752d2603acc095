"""From response_format, tool_choice and strict tools to the grammar that an answer must follow."""

import json
from collections.abc import Sequence

from soothsay.errors import OptionError
from soothsay.sampling import Grammar
from soothsay.server.bodies import (
    Chance,
    ChatBody,
    ChoiceFormat,
    Function,
    GrammarFormat,
    Json,
    JsonObjectFormat,
    JsonSchemaFormat,
    NamedTool,
    RegexFormat,
)
from soothsay.server.refusals import BadRequest
from soothsay.server.toolcalls import CLOSE, OPEN

NEW_LINE = "\n"


def grammar(body: Chance) -> Grammar | None:
    """Give the grammar, or None where any text will do; BadRequest for one that cannot be, or for two at once."""
    try:
        asked, called = _format(body), _calls(body) if isinstance(body, ChatBody) else None
    except OptionError as error:
        raise BadRequest(str(error), param="response_format") from None
    if asked is not None and called is not None:
        raise BadRequest("response_format and a forced or strict tool call exclude each other", param="response_format")
    return asked or called


def _format(body: Chance) -> Grammar | None:
    match body.response_format:
        case JsonObjectFormat():
            return Grammar.json()
        case JsonSchemaFormat(json_schema=named):
            return Grammar.json_schema(named.schema_ or {"type": "object"})
        case RegexFormat(pattern=pattern):
            return Grammar.regex(pattern)
        case ChoiceFormat(choices=choices):
            return Grammar.choice(choices)
        case GrammarFormat(grammar=text):
            return Grammar.lark(text)
    return None


def _calls(body: ChatBody) -> Grammar | None:
    """Give the grammar of calls where one must come, where there may be only one, or where schemas are strict."""
    tools = [tool.function for tool in body.tools or ()]
    if not tools or body.tool_choice == "none":
        return None
    if isinstance(body.tool_choice, NamedTool):
        return _lark("call", [tool for tool in tools if tool.name == body.tool_choice.function.name])
    several = "call" if body.parallel_tool_calls is False else 'call ("\\n" call)*'
    if body.tool_choice == "required":
        return _lark(several, tools)
    if body.parallel_tool_calls is False or any(tool.strict for tool in tools):
        return _lark(f"TEXT | {several}", tools)
    return None


def _lark(start: str, tools: Sequence[Function]) -> Grammar:
    """Write the calls of some tools in the form that `toolcalls` reads; a text has no call in it."""
    bodies = [f"body{place}" for place in range(len(tools))]
    rules = [
        f"start: {start}",
        f"TEXT: /[^<](?s:.)*/ & ~/(?s:.*){OPEN}(?s:.*)/",
        f"call: {json.dumps(OPEN + NEW_LINE)} ({' | '.join(bodies)}) {json.dumps(NEW_LINE + CLOSE)}",
        *(f"{body}: %json {json.dumps(_schema(tool))}" for body, tool in zip(bodies, tools, strict=True)),
    ]
    return Grammar.lark("\n".join(rules))


def _schema(tool: Function) -> Json:
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": tool.parameters or {"type": "object"}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
