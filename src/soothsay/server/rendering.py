"""From the messages and tools of a request to the text that the model goes on from, by its own chat template."""

import json
from typing import Any

from soothsay.load import Loaded
from soothsay.server.bodies import Assistant, Call, ChatBody, Json, Message, NamedTool, Text, Tool, ToolResult
from soothsay.server.refusals import BadRequest, blamed


def offers_tools(body: ChatBody) -> bool:
    """Say whether the model is shown tools."""
    return bool(body.tools) and body.tool_choice != "none"


def check(body: ChatBody, loaded: Loaded) -> None:
    """Refuse by name what this model or this server cannot do."""
    if body.tool_choice is not None and not body.tools:
        raise BadRequest("tool_choice is given without tools", param="tool_choice")
    if isinstance(body.tool_choice, NamedTool):
        named, known = body.tool_choice.function.name, [tool.function.name for tool in body.tools or ()]
        if named not in known:
            raise BadRequest(f"tool_choice names {named[:80]!r}, which is none of tools", param="tool_choice")
    if body.tools and (loaded.template is None or not loaded.template.takes_tools):
        raise _unsupported("tools", "the model's chat template has no place for tools")


def rendered(body: ChatBody, loaded: Loaded) -> str:
    """Give the chat as the model's template writes it; BadRequest where there is none or it fails."""
    if loaded.template is None:
        raise BadRequest("the model has no chat template; use /v1/completions", param="messages")
    tools = [_tool(tool) for tool in body.tools or ()] if offers_tools(body) else None
    template, chat = loaded.template, [_message(message) for message in body.messages]
    return blamed("messages", lambda: template.render(chat, tools=tools))


def _unsupported(field: str, message: str) -> BadRequest:
    return BadRequest(message, param=field, code="unsupported")


def _message(message: Message) -> Json:
    """Write a message as templates read it: text in one piece, and a developer's word as the system's."""
    role = "system" if message.role == "developer" else message.role
    turn: Json = {"role": role, "content": _text(message.content)}
    if isinstance(message, Assistant) and message.tool_calls:
        turn["tool_calls"] = [_call(call) for call in message.tool_calls]
    if isinstance(message, ToolResult):
        turn["tool_call_id"] = message.tool_call_id
    return turn


def _text(content: str | list[Text] | None) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content or ())


def _call(call: Call) -> Json:
    """Templates write the arguments as JSON themselves."""
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": _arguments(call)}}


def _arguments(call: Call) -> dict[str, Any]:
    try:
        found = json.loads(call.function.arguments)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        name = call.function.name[:80]
        raise BadRequest(f"the arguments of a call of {name!r} must be a JSON object, as text", param="messages")
    return found


def _tool(tool: Tool) -> Json:
    return tool.model_dump(exclude_none=True)
