"""Line plots as SVG, without a plotting library: small files that a browser, a README and a report show alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")
WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 34, 48


def line_plot(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    logarithmic_x: bool = False,
) -> str:
    """Draw named series of (x, y) points.

    Args:
        series: points by name; points that are not finite (or not positive on a logarithmic axis) are left out.
        logarithmic_x: logarithmic horizontal axis.

    Returns:
        The text of an SVG file.

    Example:
        >>> line_plot({"a": [(0, 1), (1, 2)]}, title="t", x_label="s", y_label="dB").startswith("<svg")
        True
    """
    kept = {
        name: [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y) and (x > 0 or not logarithmic_x)]
        for name, points in series.items()
    }
    xs = [x for points in kept.values() for x, _ in points] or [1.0]
    ys = [y for points in kept.values() for _, y in points] or [0.0]
    y_ticks = _ticks(min(ys), max(ys))
    if logarithmic_x:
        x_ticks = [10.0**e for e in range(math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs))) + 1)]
        x_ticks = sorted({*x_ticks, *(3 * t for t in x_ticks)})
        low, high = min(xs), max(xs)
        x_ticks = [t for t in x_ticks if low <= t <= high] or [low]
    else:
        x_ticks = _ticks(min(xs), max(xs))
        low, high = x_ticks[0], x_ticks[-1]

    def place_x(x: float) -> float:
        part = math.log(x / low) / math.log(high / low) if logarithmic_x and high > low else 0.0
        if not logarithmic_x and high > low:
            part = (x - low) / (high - low)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def place_y(y: float) -> float:
        span = (y_ticks[-1] - y_ticks[0]) or 1.0
        return HEIGHT - BOTTOM - (y - y_ticks[0]) / span * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="20" text-anchor="middle" font-size="14">{escape(title)}</text>',
    ]
    for tick in y_ticks:
        y = place_y(tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in x_ticks:
        x = place_x(tick)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#eee"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{tick:g}</text>')
    middle = (HEIGHT - BOTTOM + TOP) / 2
    parts.append(f'<text x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>')
    for index, (name, points) in enumerate(kept.items()):
        color = COLORS[index % len(COLORS)]
        path = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        y = HEIGHT - BOTTOM - 14 - 18 * (len(kept) - 1 - index)
        parts.append(
            f'<line x1="{WIDTH - 190}" x2="{WIDTH - 166}" y1="{y}" y2="{y}" stroke="{color}" stroke-width="3"/>'
        )
        parts.append(f'<text x="{WIDTH - 160}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _ticks(low: float, high: float) -> list[float]:
    """Round values that cover the range in about five steps."""
    span = (high - low) or max(abs(high), 1.0)
    step = 10 ** math.floor(math.log10(span / 5))
    step = next(step * factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 6)
    first = math.floor(low / step)
    last = max(math.ceil(high / step), first + 1)
    return [round(k * step, 12) for k in range(first, last + 1)]
