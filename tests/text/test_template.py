"""A template comes with a downloaded file: it must render as transformers does, and may not hang or break out."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest

from soothsay.errors import EmptyPrompt, FileCorrupt, PromptError, TemplateError
from soothsay.text.template import ChatTemplate

CHAT = [{"role": "system", "content": "S"}, {"role": "user", "content": "<q> 'é'"}]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "{% for m in messages %}\n  {% if m.role == 'user' %}\nU:{{ m.content }}\n{% endif %}\n{% endfor %}",
            "U:<q> 'é'\n",
        ),
        ("{% for m in messages %}{{ loop.index0 }}{{ loop.last }}{{ loop.length }} {% endfor %}", "0False2 1True2 "),
        (
            "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}",
            "user",
        ),
        ("{% for m in messages if m.role == 'tool' %}{{ m }}{% else %}none{% endfor %}", "none"),
        ("{{ messages[1] | tojson }}", '{"role": "user", "content": "<q> \'é\'"}'),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n * 2 }}",
            "4",
        ),
        ("{{ bos_token ~ '-' ~ eos_token }}{{ '!' * 3 }}{{ messages | length % 2 }}", "B-E!!!0"),
        ("{% if tools %}T{% endif %}{% if add_generation_prompt %}G{% endif %}{{ unknown }}", "G"),
        ("{% macro f(x) %}[{{ x | trim }}]{% endmacro %}{{ f(' a ') }}{{ 'a,b'.split(',')[1] }}", "[a]b"),
        ("{{ strftime_now('%d %b %Y') }}", "05 Mar 2031"),
    ],
)
def test_templates_have_what_transformers_gives_them(source: str, text: str) -> None:
    template = ChatTemplate(source, bos="B", eos="E")
    assert template.render(CHAT, now=lambda: datetime(2031, 3, 5)) == text


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('Only\n user') }}", "Only user"),
        ("{% for m in messages %}", "end of template"),
        ("{{ messages.nothing.more }}", "no attribute 'nothing'"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% include 'other' %}", "no loader"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
    ],
)
def test_a_failing_template_is_one_line(source: str, reason: str) -> None:
    with pytest.raises(TemplateError, match=reason) as caught:
        ChatTemplate(source).render(CHAT)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(10**9) %}x{% endfor %}",
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{{ messages[1].content * 99999 }}{% endfor %}",
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ 'a' * 99999999999 }}",
        "{{ 'a'.ljust(99999999999) }}",
        "{{ 'a' | center(99999999999) }}",
    ],
)
def test_a_runaway_template_is_stopped(source: str) -> None:
    with pytest.raises(TemplateError):
        ChatTemplate(source).render(CHAT)


@pytest.mark.parametrize(
    ("messages", "error", "reason"),
    [
        ([], EmptyPrompt, "no message"),
        ([{"role": "user"}], PromptError, "exactly 'role' and 'content'"),
        ([{"role": "user", "content": "x", "name": "y"}], PromptError, "exactly"),
        ([{"role": "user", "content": "x", "tool_calls": []}], PromptError, "has 'tool_calls'; legal is exactly"),
        ([{"role": "tool", "content": "x", "tool_calls": []}], PromptError, "'content' and 'tool_call_id'"),
        ([{"role": "usr", "content": "x"}], PromptError, "'usr'; legal: system, user"),
        ([{"role": "user", "content": ["x"]}], PromptError, "list; legal is text"),
        (["hello"], PromptError, "exactly"),
    ],
)
def test_malformed_messages_are_refused_by_name(messages: Sequence[Any], error: type, reason: str) -> None:
    with pytest.raises(error, match=reason):
        ChatTemplate("{{ messages }}").render(messages)


def test_tools_calls_and_results_reach_the_template() -> None:
    source = (
        "{% for tool in tools %}{{ tool.function.name }};{% endfor %}{% for m in messages %}"
        "{% for call in m.tool_calls or [] %}{{ call.function.arguments | tojson }};{% endfor %}"
        "{{ m.tool_call_id }}{{ m.content }}{% endfor %}"
    )
    tools = [{"type": "function", "function": {"name": "weather"}}]
    call = {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    chat: list[Mapping[str, Any]] = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": ":rain", "tool_call_id": "7"},
    ]
    assert ChatTemplate(source).render(chat, tools=tools) == 'weather;{"city": "Oslo"};7:rain'


@pytest.mark.parametrize(
    ("source", "takes"),
    [
        ("{% if tools %}T{% endif %}", True),
        ("{% set tools = 3 %}{{ tools }}", False),
        ("{{ messages }} tools", False),
        ("{% for m in messages %}", False),  # it fails whatever it is given
    ],
)
def test_a_template_tells_whether_it_takes_tools(source: str, takes: bool) -> None:
    assert ChatTemplate(source).takes_tools is takes


def test_a_file_without_a_template_points_to_raw_text(metadata: dict[str, Any]) -> None:
    with pytest.raises(TemplateError, match="raw text"):
        ChatTemplate.from_metadata(metadata)
    with pytest.raises(FileCorrupt, match="not text"):
        ChatTemplate.from_metadata(metadata | {"tokenizer.chat_template": 3})


def test_the_file_spells_its_own_tokens(metadata: dict[str, Any]) -> None:
    template = ChatTemplate.from_metadata(metadata | {"tokenizer.chat_template": "{{ bos_token }}{{ eos_token }}"})
    assert template.render(CHAT) == "<|endoftext|><|im_end|>"
