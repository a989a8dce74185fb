"""Draw reliability diagrams as SVG."""

from __future__ import annotations

from collections.abc import Sequence

from training.metrics import Bin

MIN_HITS = 20
"""Number of hits from which a bin has a point; the share among fewer says little."""
SIDE, LEFT, TOP = 300, 64, 34
_STYLE = """
text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: #24292f }
.name { font-weight: 600 } .frame { fill: #eef3fb; stroke: #b6c6e3 } .bar { fill: #b6c6e3 }
.even { stroke: #57606a; stroke-dasharray: 4 4 } .line { fill: none; stroke: #1f5fbf; stroke-width: 2 }
.point { fill: #1f5fbf }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .frame { fill: #18222f; stroke: #3c4f6b } .bar { fill: #3c4f6b }
.even { stroke: #8b949e } .line { stroke: #6ea8fe } .point { fill: #6ea8fe }
}
"""


def to_svg(bins: Sequence[Bin], title: str) -> str:
    """Draw the observed share by the predicted one, and the share of hits in each bin."""
    total = max(sum(one.n for one in bins), 1)
    points = [
        (LEFT + SIDE * one.predicted, TOP + SIDE * (1 - one.observed)) for one in bins if one.n >= MIN_HITS
    ]
    parts = [
        f'<rect x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}" class="frame"/>',
        *(
            f'<rect x="{LEFT + SIDE * one.low + 2:.1f}" y="{TOP + SIDE * (1 - one.n / total):.1f}"'
            f' width="{SIDE * (one.high - one.low) - 4:.1f}" height="{SIDE * one.n / total:.1f}"'
            ' class="bar"/>'
            for one in bins
        ),
        f'<path d="M{LEFT} {TOP + SIDE} L{LEFT + SIDE} {TOP}" class="even"/>',
        f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" class="line"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="point"/>' for x, y in points),
        f'<text x="{LEFT}" y="{TOP - 14}" class="name">{title}</text>',
        f'<text x="{LEFT + SIDE / 2}" y="{TOP + SIDE + 40}" text-anchor="middle">predicted relevance</text>',
        f'<text transform="translate(16 {TOP + SIDE / 2}) rotate(-90)" text-anchor="middle">'
        "observed share (bars: share of hits)</text>",
    ]
    for at in (0, 0.5, 1):
        parts.append(f'<text x="{LEFT + SIDE * at}" y="{TOP + SIDE + 18}" text-anchor="middle">{at:g}</text>')
        parts.append(f'<text x="{LEFT - 8}" y="{TOP + SIDE * (1 - at) + 4}" text-anchor="end">{at:g}</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + SIDE + 20} {TOP + SIDE + 52}"'
        f' role="img" aria-labelledby="title">\n<title id="title">{title}</title>'
    )
    body = "\n".join(parts)
    return f"{head}\n<style>{_STYLE}</style>\n{body}\n</svg>\n"
