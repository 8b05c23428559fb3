"""Plots as SVG: lines over one or two logarithmic axes, with what lies between the least and the greatest round shaded.
They need no library, and can be read on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

WIDTH, HEIGHT = 790, 420
LEFT, RIGHT, TOP, BOTTOM = 76, 220, 46, 54
COLOURS: Final = ("#0969da", "#cf222e", "#1a7f37", "#9a6700", "#8250df", "#bf3989", "#57606a", "#0a7ea4", "#bc4c00")
STYLE: Final = """
    .paper { fill: #ffffff; stroke: #d0d7de; } .grid { stroke: #d8dee4; } .axis { stroke: #57606a; }
    text { fill: #1f2328; font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
    .title { font-size: 15px; font-weight: 600; } .small { fill: #57606a; }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117; stroke: #30363d; } .grid { stroke: #21262d; } .axis { stroke: #8b949e; }
      text { fill: #e6edf3; } .small { fill: #9aa4af; }
    }
"""


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float
    least: float
    greatest: float


@dataclass(slots=True)
class Plot:
    """One picture. `lines`: the points of each, by its name."""

    title: str
    x: str
    y: str
    lines: dict[str, list[Point]] = field(default_factory=dict)
    log_y: bool = True

    def svg(self) -> str:
        points = [point for line in self.lines.values() for point in line]
        if not points:
            raise ValueError(f"nothing to plot: {self.title}")
        xs = _Axis([point.x for point in points], LEFT, WIDTH - RIGHT, log=True)
        ends = [value for point in points for value in (point.least, point.greatest)]
        ys = _Axis(ends if self.log_y else [0.0, *ends], HEIGHT - BOTTOM, TOP, log=self.log_y)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            f"<title>{escape(self.title)}</title><style>{STYLE}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
            f'<text class="title" x="{LEFT}" y="26">{escape(self.title)}</text>',
        ]
        parts += _grid(xs, ys)
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(f'<text class="small" x="{middle}" y="{HEIGHT - 14}" text-anchor="middle">{escape(self.x)}</text>')
        at = (TOP + HEIGHT - BOTTOM) / 2
        turned = f'text-anchor="middle" transform="rotate(-90 18 {at})"'
        parts.append(f'<text class="small" x="18" y="{at}" {turned}>{escape(self.y)}</text>')
        for number, (name, line) in enumerate(self.lines.items()):
            parts += _line(name, sorted(line, key=lambda point: point.x), number, xs, ys)
        return "\n".join([*parts, "</svg>\n"])


class _Axis:
    """From values to pixels."""

    def __init__(self, values: Sequence[float], first: float, last: float, *, log: bool) -> None:
        self._log = log
        self._first, self._last = first, last
        low, high = min(values), max(values)
        if log:
            low, high = max(low, 1e-9), max(high, 1e-9)
            high = high if high > low else 2 * low
            self.ticks = _powers(low, high)
            self._low, self._high = math.log(low), math.log(high)
        else:
            step = 10 ** math.floor(math.log10((high - low) or 1))
            step = step / 5 if (high - low) / step < 2 else step / 2 if (high - low) / step < 5 else step
            self.ticks = [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
            self._low, self._high = low, high if high > low else low + 1

    def at(self, value: float) -> float:
        value = math.log(max(value, 1e-9)) if self._log else value
        return self._first + (value - self._low) / (self._high - self._low) * (self._last - self._first)


def _powers(low: float, high: float) -> list[float]:
    """Round values between two, on a logarithmic axis."""
    steps = (1, 2, 5) if high / low < 1000 else (1,)
    found = [
        step * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for step in steps
    ]
    return [value for value in found if low * 0.999 <= value <= high * 1.001] or [low, high]


def _grid(xs: _Axis, ys: _Axis) -> list[str]:
    parts = []
    for value in xs.ticks:
        x = xs.at(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{short(value)}</text>')
    for value in ys.ticks:
        y = ys.at(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>')
    parts.append(f'<path class="axis" fill="none" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    return parts


def _line(name: str, points: Sequence[Point], number: int, xs: _Axis, ys: _Axis) -> list[str]:
    colour = COLOURS[number % len(COLOURS)]
    dash = ' stroke-dasharray="5 4"' if number >= len(COLOURS) else ""
    upper = [f"{xs.at(point.x):.1f},{ys.at(point.greatest):.1f}" for point in points]
    lower = [f"{xs.at(point.x):.1f},{ys.at(point.least):.1f}" for point in reversed(points)]
    path = " ".join([f"{xs.at(point.x):.1f},{ys.at(point.y):.1f}" for point in points])
    label = TOP + 8 + 18 * number
    stroke = f'stroke="{colour}" stroke-width="2"{dash}'
    return [
        f'<polygon points="{" ".join([*upper, *lower])}" fill="{colour}" opacity="0.12"/>',
        f'<polyline points="{path}" fill="none" {stroke}/>',
        *[f'<circle cx="{xs.at(p.x):.1f}" cy="{ys.at(p.y):.1f}" r="2.6" fill="{colour}"/>' for p in points],
        f'<line x1="{WIDTH - RIGHT + 14}" x2="{WIDTH - RIGHT + 34}" y1="{label}" y2="{label}" {stroke}/>',
        f'<text x="{WIDTH - RIGHT + 40}" y="{label + 4}">{escape(name)}</text>',
    ]


def short(value: float) -> str:
    """1500 → 1.5k."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{letter}"
    return f"{value:g}"
