"""What the answers say: one row a contender, as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.peers.contest import Answer, Contender, Results
from soothsay.bench.statistics import interval

Interval = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Row:
    """Medians over the prompts, with their 95 % intervals; None where there is nothing to say.

    `speedup` is over the same engine without drafts, prompt by prompt, and `ahead` how many times faster soothsay's
    own best setting, the reference, is. `identical` of `compared` greedy answers are those of the engine without
    drafts. `failure` says why a contender has no figures, or no more than these.
    """

    contender: Contender
    prompts: int
    tokens_per_second: float | None
    tokens_per_second_interval: Interval
    speedup: float | None
    speedup_interval: Interval
    ahead: float | None
    ahead_interval: Interval
    identical: int | None
    compared: int
    failure: str | None


def rows(contenders: Sequence[Contender], results: Results, reference: Contender, *, greedy: bool) -> list[Row]:
    """Give a row for every contender, those that failed included."""
    by_contender = {contender: _answers(results, contender) for contender in contenders}
    return [_row(contender, by_contender, results, reference, greedy) for contender in contenders]


def _row(
    contender: Contender,
    by_contender: Mapping[Contender, Mapping[str, Answer]],
    results: Results,
    reference: Contender,
    greedy: bool,
) -> Row:
    own, plain = by_contender[contender], by_contender[_plain(contender)]
    paces = [answer.pace for answer in own.values() if answer.pace is not None]
    speedups = _ratios(own, plain) if contender.drafter != "none" else []
    ahead = _ratios(by_contender[reference], own) if contender != reference else []
    pairs = [(own[name], plain[name]) for name in own if name in plain] if contender.drafter != "none" else []
    return Row(
        contender,
        len(own),
        median(paces) if paces else None,
        interval(paces),
        median(speedups) if speedups else None,
        interval(speedups),
        median(ahead) if ahead else None,
        interval(ahead),
        sum(one.tokens == other.tokens for one, other in pairs) if greedy and pairs else None,
        len(pairs),
        results.failures.get(contender),
    )


def _plain(contender: Contender) -> Contender:
    return Contender(contender.engine, "none")


def _answers(results: Results, contender: Contender) -> dict[str, Answer]:
    return {answer.prompt: answer for answer in results.answers if answer.contender == contender}


def _ratios(fast: Mapping[str, Answer], slow: Mapping[str, Answer]) -> list[float]:
    """Paces of the one over those of the other, prompt by prompt."""
    shared = ((fast[name].pace, slow[name].pace) for name in fast if name in slow)
    return [one / other for one, other in shared if one is not None and other is not None]


def table(rows: Sequence[Row], reference: Contender) -> str:
    """Give the rows in Markdown, with the reasons of those that failed below."""
    head = (
        "| engine | setting | tokens/s | over its own plain | its plain answers kept | "
        f"soothsay ({reference.setting}) over it |"
    )
    lines = [head, "|---|---|---|---|---|---|", *(_line(row) for row in rows)]
    failed = [f"- {_name(row.contender)}: {row.failure}" for row in rows if row.failure]
    return "\n".join([*lines, *(["", "Did not run:", "", *failed] if failed else [])])


def _line(row: Row) -> str:
    cells = (
        row.contender.engine,
        row.contender.setting,
        "did not run" if row.failure and not row.prompts else _spread(row.tokens_per_second, None, ".1f"),
        _spread(row.speedup, row.speedup_interval, ".2f"),
        "" if row.identical is None else f"{row.identical} of {row.compared}",
        _spread(row.ahead, row.ahead_interval, ".2f"),
    )
    return f"| {' | '.join(cells)} |"


def _spread(value: float | None, spread: Interval, form: str) -> str:
    if value is None:
        return ""
    around = f" ({spread[0]:{form}} to {spread[1]:{form}})" if spread else ""
    return f"{value:{form}}{around}"


def _name(contender: Contender) -> str:
    return f"{contender.engine}, {contender.setting}"


def passes_table(figures: Mapping[str, Mapping[str, float]], prompt_tokens: int) -> str:
    """Give what passes cost by engine, in Markdown, with soothsay's share of llama.cpp's time."""
    counts = [int(key.removeprefix("milliseconds_")) for key in figures["soothsay"] if key.startswith("milliseconds_")]
    lines = [
        f"| | {' | '.join(figures)} | ratio |",
        f"|---|{'---|' * (len(figures) + 1)}",
        *(_pass_line(f"{count} rows, ms", f"milliseconds_{count}", figures) for count in counts),
        *(_pass_line(f"v({count})", f"v_{count}", figures) for count in counts),
        _pass_line(f"prompt of {prompt_tokens}, tokens/s", "prompt_tokens_per_second", figures),
    ]
    return "\n".join(lines)


def _pass_line(name: str, key: str, figures: Mapping[str, Mapping[str, float]]) -> str:
    values = [found[key] for found in figures.values()]
    ratio = f"{values[0] / values[1]:.2f}" if len(values) > 1 else ""
    return f"| {name} | {' | '.join(f'{value:.2f}' for value in values)} | {ratio} |"
