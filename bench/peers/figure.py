"""The table's tokens a second as bars, in an SVG of its own that reads on light and on dark pages."""

from collections.abc import Sequence
from html import escape

from bench.peers.report import Row

WIDTH = 760
MARGIN = 20
HEADER = 82
LABEL_WIDTH = 250
VALUE_WIDTH = 130
BAR = 18
STEP = 26
GAP = 10
"""Pixels; the last is the room between engines."""

STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de; }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .title { font-size: 16px; font-weight: 600; }
  .quiet { fill: #59636e; }
  .bar { fill: #9aa4af; }
  .ours { fill: #0969da; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d; }
    text { fill: #f0f6fc; }
    .quiet { fill: #9198a1; }
    .bar { fill: #59636e; }
    .ours { fill: #4493f8; }
  }
"""


def draw(rows: Sequence[Row], title: str, subtitles: tuple[str, str], ours: str) -> str:
    """Give the figure: one bar a row, those of the engine `ours` in colour; who did not run says so."""
    longest = max((row.tokens_per_second or 0.0 for row in rows), default=0.0) or 1.0
    shapes, top = [], float(HEADER)
    for place, row in enumerate(rows):
        if place and row.contender.engine != rows[place - 1].contender.engine:
            top += GAP
        shapes.append(_bar(row, top, (row.tokens_per_second or 0.0) / longest, ours))
        top += STEP
    return _page(int(top) + MARGIN // 2, title, subtitles, shapes)


def _page(height: int, title: str, subtitles: tuple[str, str], shapes: Sequence[str]) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        f'<text class="title" x="{MARGIN}" y="28">{escape(title)}</text>',
        *(
            f'<text class="quiet" x="{MARGIN}" y="{48 + 18 * place}">{escape(line)}</text>'
            for place, line in enumerate(subtitles)
        ),
        *shapes,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _bar(row: Row, top: float, share: float, ours: str) -> str:
    left, middle = MARGIN + LABEL_WIDTH, top + BAR - 4
    length = share * (WIDTH - left - VALUE_WIDTH - MARGIN)
    kind = "ours" if row.contender.engine == ours else "bar"
    label = f"{row.contender.engine}, {row.contender.setting}"
    return (
        f'<text x="{left - 10}" y="{middle:g}" text-anchor="end">{escape(label)}</text>'
        f'<rect class="{kind}" x="{left}" y="{top:g}" width="{length:.1f}" height="{BAR}" rx="3"/>'
        f'<text class="quiet" x="{left + length + 8:.1f}" y="{middle:g}">{escape(_value(row))}</text>'
    )


def _value(row: Row) -> str:
    if row.tokens_per_second is None:
        return "did not run"
    return f"{row.tokens_per_second:.1f} tokens/s" + (f", {row.speedup:.2f}x" if row.speedup else "")
