"""Charts as SVG: lines over time or numbers, and bars. Without dependencies or scripts, readable on light and dark
pages. Pure: values in, text out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from html import escape
from typing import Any, Final

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 70, 40, 14, 46  # margins of the plot
COLORS: Final = ("#2f6f9f", "#d1793b", "#4d9a5c", "#a2528f", "#8a7a35", "#5b62b5", "#b5484d", "#3c9a94")
BAR = 22  # height of a bar, including the space below it
MAX_POINTS = 2_000  # of a line; more are thinned out

Points = Sequence[tuple[Any, float]]


def lines(series: Mapping[str, Points], unit: str = "") -> str:
    """A line for each series of (x, y); x is a time or a number."""
    drawn = {name: _thinned(sorted((_number(x), float(y)) for x, y in points)) for name, points in series.items()}
    everything = [point for points in drawn.values() for point in points]
    if not everything:
        return _empty()
    times = any(isinstance(x, date) for points in series.values() for x, _ in points)
    across = _Scale([x for x, _ in everything], LEFT, WIDTH - RIGHT)
    up = _Scale([0.0, *(y for _, y in everything)], HEIGHT - BOTTOM, TOP)
    parts = [*_grid(up, unit), *_times(across, times)]
    for index, (name, points) in enumerate(drawn.items()):
        color = COLORS[index % len(COLORS)]
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.8"/>')
        if len(points) < 40:
            parts += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="2.2" fill="{color}"/>' for x, y in points]
        parts.append(_label(LEFT + 6 + 110 * (index % 6), HEIGHT - 6 - 12 * (index // 6), "●", color, size=11))
        parts.append(_label(LEFT + 18 + 110 * (index % 6), HEIGHT - 6 - 12 * (index // 6), name[:16], size=11))
    return _svg(parts, HEIGHT + 12 * ((len(drawn) - 1) // 6))


def bars(values: Mapping[str, float], unit: str = "", marks: Mapping[str, float] | None = None) -> str:
    """A bar for each value, with its number; a mark is a target on its bar."""
    if not values:
        return _empty()
    marks = marks or {}
    left, height = 250, BAR * len(values) + 8
    across = _Scale([0.0, *values.values(), *marks.values()], left, WIDTH - 80)
    parts = []
    for index, (name, value) in enumerate(values.items()):
        y = 4 + index * BAR
        width = max(1.0, across(value) - left)
        parts.append(_label(left - 8, y + 13, name[:40], anchor="end"))
        parts.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{BAR - 6}" fill="{COLORS[0]}" rx="2"/>')
        parts.append(_label(left + width + 6, y + 13, f"{_text(value)}{unit}"))
        if name in marks:
            place = f'x="{across(marks[name]) - 1:.1f}" y="{y - 2}" width="2" height="{BAR - 2}"'
            parts.append(f'<rect {place} fill="{COLORS[1]}"/>')
    return _svg(parts, height)


class _Scale:
    """Maps values to coordinates."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self.low, self.high = min(values), max(values)
        if self.high == self.low:
            self.high = self.low + 1
        self._begin, self._end = begin, end

    def __call__(self, value: float) -> float:
        return self._begin + (value - self.low) / (self.high - self.low) * (self._end - self._begin)

    def ticks(self, count: int) -> list[float]:
        """Round numbers within the scale."""
        step = (self.high - self.low) / count
        power = 10.0 ** math.floor(math.log10(step))
        step = next(power * times for times in (1, 2, 2.5, 5, 10) if power * times >= step)
        first = math.ceil(self.low / step)
        return [number * step for number in range(first, int(self.high / step + 1e-9) + 1)]


def _grid(up: _Scale, unit: str) -> list[str]:
    parts = []
    for tick in up.ticks(4):
        y = up(tick)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#888" stroke-opacity=".25"/>'
        )
        parts.append(_label(LEFT - 8, y + 4, f"{_text(tick)}{unit}", anchor="end"))
    return parts


def _times(across: _Scale, times: bool) -> list[str]:
    """Labels of the x axis: times or numbers."""
    span = across.high - across.low
    form = "%H:%M:%S" if span < 300 else "%H:%M" if span < 172_800 else "%Y-%m-%d"
    marks = [across.low + span * part / 4 for part in range(5)] if times else across.ticks(6)
    return [
        _label(
            across(mark),
            HEIGHT - BOTTOM + 16,
            datetime.fromtimestamp(mark, UTC).strftime(form) if times else _text(mark),
            anchor="middle",
        )
        for mark in marks
    ]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return points[:: max(1, math.ceil(len(points) / MAX_POINTS))]


def _number(value: Any) -> float:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    return float(value)


def _text(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if abs(value) >= 10 * size:
            return f"{value / size:,.3g} {unit}"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _label(x: float, y: float, text: str, color: str = "currentColor", *, anchor: str = "start", size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'
    )


def _svg(parts: Sequence[str], height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'font-family="system-ui, sans-serif" color="#777">{"".join(parts)}</svg>'
    )


def _empty() -> str:
    return _svg([_label(WIDTH / 2, 24, "nothing yet", anchor="middle")], 40)
