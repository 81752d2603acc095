"""An audit's report as one page of HTML that needs nothing else: no script, no style or image from elsewhere."""

from collections.abc import Iterator, Sequence
from html import escape

from soothsay.audit.law import LawTest
from soothsay.audit.run import Report
from soothsay.audit.show import totals, verdict

STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --paper: #fdfdfb; --faint: #8a94a0; --good: #1a7f4b; --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dfe5ea; --paper: #15191e; --faint: #77828d; --good: #5bc58d; --bad: #ff8a80; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
       max-width: 60rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { text-align: right; padding: 0.2rem 0.5rem;
         border-bottom: 1px solid color-mix(in srgb, var(--faint) 40%, transparent); }
th:first-child, td:first-child { text-align: left; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
pre { white-space: pre-wrap; } figure { margin: 2rem 0; overflow-x: auto; } figcaption { color: var(--faint); }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
"""
WIDTH, ROW, LEFT, RIGHT = 860, 20, 300, 40
SIDE = 280


def page(report: Report) -> str:
    """Give the page."""
    good = report.stage is None
    said = "\n".join(map(escape, verdict(report)))
    return "\n".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Audit of {escape(report.model)}</title><style>{STYLE}</style>",
            f"<h1>Audit of {escape(report.model)}</h1>",
            f'<pre class="{"good" if good else "bad"}">{said}</pre>',
            *_equalities(report),
            *(_laws(report) if report.laws else ()),
            "</html>\n",
        ]
    )


def _equalities(report: Report) -> Iterator[str]:
    yield "<h2>The same tokens</h2>"
    heads = ("who drafts", "answers", "tokens", "drafted", "accepted", "different")
    rows = [
        (one.way, one.answers, one.tokens, one.drafted, one.accepted, one.differences)
        for one in totals(report.equalities)
    ]
    yield _table(heads, rows)


def _laws(report: Report) -> Iterator[str]:
    yield "<h2>The same law</h2>"
    yield _figure(
        _variations(report.laws),
        "Total variation between what was said and the model's own probabilities: seen (dot), at most (bar), and what "
        "would have been caught (tick).",
    )
    yield _figure(_p_values(report.laws), "The p-values in order, beside those of a right engine (line).")
    heads = ("law", "runs", "cells", "p", "variation", "at most", "caught")
    yield _table(
        heads,
        [
            (
                str(one),
                one.fit.runs,
                one.fit.cells,
                f"{one.fit.p_value:.2g}",
                f"{one.fit.variation:.3f}",
                f"{one.fit.bound:.3f}",
                f"{one.fit.caught:.3f}",
            )
            for one in report.laws
        ],
    )


def _variations(laws: Sequence[LawTest]) -> str:
    """Draw one line a law."""
    most = max(max(one.fit.bound, one.fit.caught) for one in laws)
    height = ROW * (len(laws) + 2)
    scale = (WIDTH - LEFT - RIGHT) / most
    marks = [_axis(most, scale, height)]
    for place, one in enumerate(laws):
        y = ROW * (place + 1)
        seen, bound, caught = (LEFT + scale * value for value in (one.fit.variation, one.fit.bound, one.fit.caught))
        marks.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(_short(one))}</text>')
        marks.append(f'<line x1="{LEFT}" x2="{bound:.1f}" y1="{y}" y2="{y}" stroke="var(--faint)" stroke-width="3"/>')
        marks.append(f'<line x1="{caught:.1f}" x2="{caught:.1f}" y1="{y - 6}" y2="{y + 6}" stroke="var(--ink)"/>')
        marks.append(f'<circle cx="{seen:.1f}" cy="{y}" r="4" fill="var(--good)"/>')
    return _svg(WIDTH, height, marks)


def _axis(most: float, scale: float, height: int) -> str:
    ticks = [most * share / 4 for share in range(5)]
    return "".join(
        f'<text x="{LEFT + scale * tick:.1f}" y="{height - 6}" text-anchor="middle">{tick:.2f}</text>' for tick in ticks
    )


def _p_values(laws: Sequence[LawTest]) -> str:
    """Draw the p-values in order against those that equal laws would give."""
    values = sorted(one.fit.p_value for one in laws)
    marks = [f'<line x1="30" y1="{SIDE + 10}" x2="{30 + SIDE}" y2="10" stroke="var(--faint)"/>']
    for place, value in enumerate(values):
        x, y = 30 + SIDE * (place + 0.5) / len(values), 10 + SIDE * (1 - value)
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="var(--good)"/>')
    for label, x, y in (("0", 18, SIDE + 14), ("1", 18, 14), ("expected", SIDE - 10, SIDE + 26)):
        marks.append(f'<text x="{x}" y="{y}">{label}</text>')
    return _svg(SIDE + 60, SIDE + 40, marks)


def _short(one: LawTest) -> str:
    return f"{one.rule}, {one.drafter}, T {one.temperature:g}, options {one.options}"


def _svg(width: int, height: int, marks: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">{"".join(marks)}</svg>'


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
