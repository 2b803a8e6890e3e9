"""Draws curves as SVG, for docs: `curves.py data.json curves.svg`.

The JSON is `{"title": .., "x": .., "y": .., "series": [{"name": .., "x": [..], "y": [..]}, ..]}`;
`"log_y": true` has a logarithmic axis. No library is needed, and the same data give the same bytes.
"""

import json
import math
import sys
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 44, 52
#: Okabe and Ito's colours, which colour-blind people can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d1f", "#555555")
DASHES = ("", "7 4", "2 3", "9 3 2 3")


def ticks(least: float, most: float, about: int = 6) -> list[float]:
    """Round numbers from `least` to `most`."""
    span = most - least or 1.0
    step = 10 ** math.floor(math.log10(span / about))
    step *= next(it for it in (1, 2, 5, 10) if span / (step * it) <= about)
    first = math.ceil(least / step - 1e-9)
    return [round(it * step, 10) for it in range(first, math.floor(most / step + 1e-9) + 1)]


def decades(least: float, most: float) -> list[float]:
    """1, 2 and 5 of each power of ten between them."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    marks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    return [it for it in marks if least <= it <= most]


def text(number: float) -> str:
    """As short as it can be read."""
    return f"{number:g}"


def svg(data: dict) -> str:
    """The picture."""
    series = [(it["name"], list(zip(it["x"], it["y"], strict=True))) for it in data["series"]]
    points = [point for _, curve in series for point in curve if math.isfinite(point[1])]
    if not points:
        raise ValueError("there is no finite point in any series")
    is_log = bool(data.get("log_y"))
    least_x, most_x = min(x for x, _ in points), max(x for x, _ in points)
    least_y, most_y = min(y for _, y in points), max(y for _, y in points)
    if is_log and least_y <= 0:
        raise ValueError("a logarithmic axis needs positive values")
    height = (lambda y: math.log(y)) if is_log else (lambda y: y)
    margin = (height(most_y) - height(least_y)) * 0.05 or 0.5
    low, high = height(least_y) - margin, height(most_y) + margin

    def across(x: float) -> float:
        return LEFT + (x - least_x) / ((most_x - least_x) or 1.0) * (WIDTH - LEFT - RIGHT)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - (height(y) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(data['title'])}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{WIDTH / 2}" y="24" text-anchor="middle" font-size="15">{escape(data["title"])}</text>',
    ]
    for mark in decades(least_y, most_y) if is_log else ticks(least_y, most_y):
        y = up(mark)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text(mark)}</text>')
    for mark in ticks(least_x, most_x, 10):
        x = across(mark)
        out.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 5}" stroke="#333333"/>'
        )
        out.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 19}" text-anchor="middle">{text(mark)}</text>')
    out.append(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}" stroke="#333333"/>'
    )
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(data["x"])}</text>')
    middle = (HEIGHT - BOTTOM + TOP) / 2
    out.append(f'<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">{escape(data["y"])}</text>')
    for number, (name, curve) in enumerate(series):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in curve if math.isfinite(y))
        style = f'fill="none" stroke="{colour}" stroke-width="1.8" stroke-opacity="0.85"' + (
            f' stroke-dasharray="{dash}"' if dash else ""
        )
        out.append(f'<polyline points="{path}" {style}/>')
        y = TOP + 8 + 17 * number
        out.append(f'<line x1="{WIDTH - 250}" x2="{WIDTH - 226}" y1="{y}" y2="{y}" {style}/>')
        out.append(f'<text x="{WIDTH - 220}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>", ""])


def main() -> None:
    """Reads JSON, writes SVG."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    data = json.loads(Path(sys.argv[1]).read_text())
    if not isinstance(data, dict) or not {"title", "x", "y", "series"} <= data.keys():
        sys.exit(f"{sys.argv[1]}: not the form that is drawn.\n\n{__doc__}")
    Path(sys.argv[2]).write_text(svg(data))


if __name__ == "__main__":
    main()
