"""Results: what was measured in which round, as medians with their spread; JSON, Markdown and plots of it."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.plots import Plot, Point


@dataclass(slots=True)
class Figure:
    """One value of one server at one point, with a value for each round."""

    who: str  # the server, and the door
    x: float  # connections, bytes, …
    label: str  # the same in words
    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass(slots=True)
class Series:
    """Figures of one kind: a table and, if it has several points, a plot."""

    name: str
    title: str
    x: str
    y: str
    figures: list[Figure] = field(default_factory=list)
    plotted: bool = True
    log_y: bool = True

    def add(self, who: str, x: float, value: float, label: str = "") -> None:
        for figure in self.figures:
            if (figure.who, figure.x) == (who, x):
                figure.values.append(value)
                return
        self.figures.append(Figure(who, x, label or f"{x:,g}", [value]))

    def ratios(self, ours: str, others: Sequence[str]) -> list[Series]:
        """For each of the others, the series of those whose name begins with `ours`, divided by it round by round: what
        the machine does in a round falls on both."""
        found = []
        for other in others:
            theirs = {figure.x: figure.values for figure in self.figures if figure.who == other}
            series = Series(f"{self.name}-to-{other}", f"{self.title}, as a ratio to {other}", self.x, "ratio",
                            plotted=False)  # fmt: skip
            for figure in self.figures:
                if figure.who.startswith(ours) and figure.x in theirs:
                    values = [value / their for value, their in zip(figure.values, theirs[figure.x], strict=True)]
                    series.figures.append(Figure(figure.who, figure.x, figure.label, values))
            if series.figures:
                found.append(series)
        return found

    def plot(self) -> Plot:
        plot = Plot(self.title, self.x, self.y, log_y=self.log_y)
        for figure in self.figures:
            point = Point(figure.x, figure.median, min(figure.values), max(figure.values))
            plot.lines.setdefault(figure.who, []).append(point)
        return plot

    def markdown(self) -> str:
        """A row for each point, a column for each server: the median, and the least and the greatest round."""
        whos = list(dict.fromkeys(figure.who for figure in self.figures))
        points = sorted({(figure.x, figure.label) for figure in self.figures})
        by_place = {(figure.who, figure.x): figure for figure in self.figures}
        rows = [f"| {self.x} | " + " | ".join(whos) + " |", "|---" * (len(whos) + 1) + "|"]
        for x, label in points:
            rows.append(f"| {label} | " + " | ".join([_cell(by_place.get((who, x))) for who in whos]) + " |")
        return f"### {self.title}\n\n{self.y}: median (least to greatest round)\n\n" + "\n".join(rows) + "\n"

    def as_dict(self) -> dict[str, Any]:
        figures = [{"who": f.who, "x": f.x, "label": f.label, "values": f.values} for f in self.figures]
        return {"name": self.name, "title": self.title, "x": self.x, "y": self.y, "figures": figures}


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return "–"
    if len(figure.values) == 1:
        return _number(figure.median)
    return f"{_number(figure.median)} ({_number(min(figure.values))}–{_number(max(figure.values))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def write(
    out: str, pictures: str, conditions: dict[str, str], notes: Sequence[str], found: Sequence[Series]
) -> list[str]:
    """Write everything to the directory `out`, and plots to `pictures`; returns the files."""
    files: list[str] = []

    def put(name: str, text: str, directory: str = out) -> None:
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        files.append(path)

    put("results.json", json.dumps({"conditions": conditions, "series": [s.as_dict() for s in found]}, indent=1))
    put("results.md", _document(os.path.relpath(pictures, out), conditions, notes, found))
    for series in found:
        if series.plotted and len({figure.x for figure in series.figures}) > 1:
            put(f"{series.name}.svg", series.plot().svg(), pictures)
    return files


def _document(pictures: str, conditions: dict[str, str], notes: Sequence[str], found: Sequence[Series]) -> str:
    lines = ["# Penstock beside other servers", "", "Written by `make bench-peers`.", ""]
    lines += [f"- {name}: {value}" for name, value in conditions.items()]
    lines += ["", "Configurations:", "", *[f"- {note}" for note in notes], ""]
    for series in found:
        lines.append(series.markdown())
        if series.plotted and len({figure.x for figure in series.figures}) > 1:
            lines.append(f"![{series.title}]({os.path.normpath(os.path.join(pictures, series.name))}.svg)\n")
    return "\n".join(lines)
