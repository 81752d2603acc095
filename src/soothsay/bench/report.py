"""The figures as tables for people, and as objects for JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from soothsay.bench.cost import CostReport
from soothsay.bench.run import Pair
from soothsay.bench.summary import Summary, by_category, summarise, time_share
from soothsay.terminal import number, table

_SAME = {True: "identical", False: "DIFFERENT", None: "another draw of the same law"}


def cost_object(report: CostReport) -> dict[str, Any]:
    """Give the last line of `soothsay bench cost`."""
    rows = [
        {name: value for name, value in asdict(row).items() if name != "products_per_second"} for row in report.rows
    ]
    return asdict(report) | {"rows": rows}


def cost_table(report: CostReport) -> Table:
    """Draw what a pass of each number of rows costs, over what the machine could do."""
    bandwidth, peak = report.read_bandwidth_bytes_per_second, report.peak_products_per_second
    drawn = table(
        f"{report.model}: {report.isa}, {report.threads} threads, after {report.context} tokens",
        ("rows", "milliseconds", "v", "products/s", "share of the limit"),
        caption=f"a pass reads {_si(report.bytes_per_pass)}B; a plain read {_si(bandwidth)}B/s, "
        f"products from registers {_si(peak)}/s, a prompt {report.prompt_tokens_per_second:.0f} tokens/s",
    )
    for row in report.rows:
        shares = (f"{row.v:.2f}", _si(row.products_per_second), f"{row.roofline_share:.2f}")
        drawn.add_row(str(row.rows), f"{1000 * row.seconds:.2f}", *shares)
    return drawn


def run_object(
    pairs: Sequence[Pair], *, model: str | Path, draft: str | Path, temperature: float, verify: str
) -> dict[str, Any]:
    """Give the last line of `soothsay bench run`."""
    whole = asdict(summarise(pairs))
    whole.pop("acceptance_by_position")
    head = {"model": Path(model).name, "draft": Path(draft).name, "temperature": temperature, "verify": verify}
    categories = {name: asdict(summary) for name, summary in by_category(pairs).items()}
    return head | whole | {"by_category": categories, "time_share": time_share(pairs)}


def run_table(pairs: Sequence[Pair]) -> Table:
    """Draw what drafts saved, by category and in all."""
    shares = ", ".join(f"{name} {number(share)}" for name, share in time_share(pairs).items())
    heads = (
        "category",
        "prompts",
        "speedup",
        "95 %",
        "of the bound",
        "plain t/s",
        "t/s",
        "t/step",
        "accepted",
        "by place",
    )
    drawn = table("plain and speculative decoding in turn", heads, caption=f"time: {shares}")
    summaries = by_category(pairs)
    for name, summary in summaries.items():
        drawn.add_row(name, *_cells(summary))
    if len(summaries) > 1:
        drawn.add_section()
        drawn.add_row("all", *_cells(summarise(pairs)))
    return drawn


def line(pair: Pair) -> str:
    """Give the line that tells of one batch while the others wait."""
    first = [f"{side.answers[0].stats.first_token_seconds:.2f}" for side in (pair.plain, pair.drafted)]
    return (
        f"{pair.category} {pair.name}: {number(pair.plain.tokens_per_second, 1)} tokens/s plain, "
        f"{number(pair.drafted.tokens_per_second, 1)} with drafts, speedup {number(pair.speedup)} of "
        f"{number(pair.bound)} possible, first token after {' and '.join(first)} s, "
        f"{_SAME[pair.identical]}"
    )


def _cells(summary: Summary) -> tuple[str, ...]:
    spread = summary.speedup_interval
    return (
        f"{summary.prompts} DIFFERENT" if summary.identical is False else str(summary.prompts),
        number(summary.speedup),
        f"{spread[0]:.2f} to {spread[1]:.2f}" if spread is not None else "-",
        number(summary.bound_share),
        number(summary.plain_tokens_per_second, 1),
        number(summary.tokens_per_second, 1),
        number(summary.tokens_per_step),
        number(summary.acceptance_rate),
        " ".join(number(share) for share in summary.acceptance_by_position[:8]),
    )


def _si(value: float) -> str:
    """Write a large number with its prefix."""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {prefix}"
    return f"{value:.0f} "
