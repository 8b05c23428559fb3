"""Interleaved rounds of two ways to do the same work, in seconds by the clock and in processor time of all processes
that take part: the JVM, its Python workers, and those that have ended.

The clock decides on a quiet machine. Where others use the processors it tells who was pushed aside; then processor time
is the better witness, although it says nothing about work that is done at once. Results as JSON, Markdown and plots.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.report import Report

from penstock.spark.pipelines import charts

_TICK: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Timing:
    seconds: float
    processor: float  # 0 if it is not known


@dataclass(slots=True)
class Comparison:
    """What is measured, and what it is measured against: the timings of each, round by round."""

    key: str  # short, for plots
    name: str
    against: str
    rows: int
    target: float | None = None
    ours: list[Timing] = field(default_factory=list)
    theirs: list[Timing] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """How fast ours is, with theirs as 1, round by round."""
        return [them.seconds / us.seconds for us, them in zip(self.ours, self.theirs, strict=True)]

    @property
    def processor_ratios(self) -> list[float]:
        pairs = zip(self.ours, self.theirs, strict=True)
        return [them.processor / us.processor for us, them in pairs if us.processor and them.processor]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def rates(self) -> tuple[float, float]:
        """Million rows a second of both, median."""
        ours, theirs = (statistics.median(each.seconds for each in side) for side in (self.ours, self.theirs))
        return self.rows / ours / 1e6, self.rows / theirs / 1e6

    def tell(self, report: Report, doubt: str) -> None:
        ours, theirs = self.rates
        by_processor = f", by processor time {spread(self.processor_ratios)}" if self.processor_ratios else ""
        note = f"{spread(self.ratios)}{by_processor}; {ours:.2f} to {theirs:.2f} M rows/s"
        report.add(f"{self.name}, ratio to {self.against}", self.ratio, "×", target=self.target, note=note, doubt=doubt)

    def markdown(self, doubt: str) -> str:
        ours, theirs = self.rates
        met = "not judged" if doubt else "met" if self.ratio >= (self.target or 0) else "missed"
        verdict = "" if self.target is None else f"≥ {self.target:g}: {met}"
        by_processor = spread(self.processor_ratios) if self.processor_ratios else "–"
        cells = (self.name, self.against, verdict, spread(self.ratios), by_processor, f"{ours:.2f}", f"{theirs:.2f}")
        return "| " + " | ".join(cells) + " |"

    def as_dict(self) -> dict[str, Any]:
        def side(timings: Sequence[Timing]) -> dict[str, list[float]]:
            return {"seconds": [t.seconds for t in timings], "processor": [t.processor for t in timings]}

        return {
            "name": self.name,
            "against": self.against,
            "rows": self.rows,
            "target": self.target,
            "ratio": self.ratio,
            "ratios": self.ratios,
            "processor_ratios": self.processor_ratios,
            "ours": side(self.ours),
            "theirs": side(self.theirs),
        }


class Race:
    """Runs both sides of comparisons in turn: the first round warms up, and every other round begins with theirs."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._lanes: list[tuple[Comparison, Callable[[], float | None], Callable[[], float | None]]] = []

    def add(self, lane: Comparison, ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
        """A runner may return its own seconds."""
        self._lanes.append((lane, ours, theirs))

    def run(self) -> None:
        for turn in range(self._rounds + 1):
            for lane, ours, theirs in self._lanes:
                sides = [(lane.ours, ours), (lane.theirs, theirs)]
                for timings, runner in sides if turn % 2 else reversed(sides):
                    timing = timed(runner)
                    if turn:
                        timings.append(timing)


def timed(runner: Callable[[], Any]) -> Timing:
    processor, began = processor_seconds(), time.perf_counter()
    told = runner()
    seconds = time.perf_counter() - began
    return Timing(told if isinstance(told, float) else seconds, processor_seconds() - processor)


def processor_seconds() -> float:
    """Of this process and all below it, with those that ended: their parents have waited for them."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for pid, fields in _processes():
        parents[pid] = int(fields[1])
        used[pid] = sum(map(int, fields[11:15])) / _TICK
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(used.get(pid, 0.0) for pid in mine)


def _processes() -> Iterator[tuple[int, list[str]]]:
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                yield int(name), file.read().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended


def spread(values: Sequence[float]) -> str:
    """The median, and the least and the greatest."""
    middle = f"{statistics.median(values):.2f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.2f}–{max(values):.2f})"


def document(conditions: dict[str, str], what: str, doubt: str, found: Sequence[Comparison]) -> str:
    lines = ["# Spark", "", f"Written by `make bench-spark`: {what}.", ""]
    lines += [f"- {name}: {value}" for name, value in conditions.items()]
    lines += [f"- targets are not judged: {doubt}"] if doubt else []
    lines += [
        "",
        "Ratios: median (least to greatest round).",
        "",
        "| | to | target | by the clock | by processor time | M rows/s | the other |",
        "|---|---|---|---|---|---|---|",
        *(lane.markdown(doubt) for lane in found),
        "",
    ]
    return "\n".join(lines)


def plots(found: Sequence[Comparison]) -> dict[str, str]:
    """File name → picture: medians with their targets, and every round."""
    ratios = {f"{lane.key}, to {lane.against}": lane.ratio for lane in found}
    targets = {f"{lane.key}, to {lane.against}": lane.target for lane in found if lane.target is not None}
    rounds = {lane.key: list(enumerate(lane.ratios, 1)) for lane in found}
    return {"ratios.svg": charts.bars(ratios, " ×", targets), "rounds.svg": charts.lines(rounds, " ×")}


def write(
    out: str, pictures: str, conditions: dict[str, str], what: str, doubt: str, found: Sequence[Comparison]
) -> None:
    """results.json and results.md in the one directory, the plots in the other."""
    results = {"machine": conditions, "what": what, "doubt": doubt, "results": [lane.as_dict() for lane in found]}
    _put(out, "results.json", json.dumps(results, indent=1) + "\n")
    _put(out, "results.md", document(conditions, what, doubt, found))
    for name, drawn in plots(found).items():
        _put(pictures, name, drawn + "\n")


def _put(directory: str, name: str, text: str) -> None:
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
        file.write(text)
