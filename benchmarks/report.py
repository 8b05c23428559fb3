"""What a benchmark found, and how it is shown: a ratio to something measured in the same run, with its target."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Sample:
    """Things done one after the other in one round."""

    count: int
    seconds: float
    latencies: Sequence[float] = ()

    @property
    def rate(self) -> float:
        return self.count / self.seconds if self.seconds else 0.0


def merged(samples: Sequence[Sample]) -> Sample:
    """All rounds as one."""
    latencies = [latency for sample in samples for latency in sample.latencies]
    return Sample(sum(s.count for s in samples), sum(s.seconds for s in samples), latencies)


def percentile(latencies: Sequence[float], fraction: float) -> float:
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] if ordered else 0.0


def latency(sample: Sample) -> str:
    p50, p99 = percentile(sample.latencies, 0.50) * 1000, percentile(sample.latencies, 0.99) * 1000
    return f"p50 {p50:.3f} ms, p99 {p99:.3f} ms"


def ratios(of: Sequence[float], to: Sequence[float]) -> float:
    """The median over the rounds of one figure divided by the other of the same round: a noisy round counts once."""
    found = [a / b for a, b in zip(of, to, strict=True) if b]
    return statistics.median(found) if found else 0.0


DISTURBED = 4.0


def doubt(raw: Sequence[Sample]) -> str:
    """Why ratios to these rounds of raw writes prove nothing, if so. A round is disturbed if its median write took
    several times as long as the fastest tenth of all: then something else had the processor or the disk. It slows the
    raw loop and the broker unequally, so such a ratio may flatter as well as shame."""
    quick = percentile([latency for sample in raw for latency in sample.latencies], 0.1)
    disturbed = sum(percentile(sample.latencies, 0.5) > DISTURBED * quick for sample in raw)
    return f"raw writes were disturbed in {disturbed} of {len(raw)} rounds" if 3 * disturbed > len(raw) else ""


@dataclass(slots=True)
class Line:
    """One figure. `target` is what it must reach, or, with `at_most`, stay below; with a `doubt` it is not judged."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_most: bool = False
    note: str = ""
    doubt: str = ""

    @property
    def met(self) -> bool | None:
        if self.target is None or self.doubt:
            return None
        return self.value < self.target if self.at_most else self.value >= self.target

    def text(self) -> str:
        aim = ""
        if self.target is not None:
            sign = "<" if self.at_most else "≥"
            verdict = f"NOT JUDGED, {self.doubt}" if self.doubt else "met" if self.met else "MISSED"
            aim = f"  [{sign} {number(self.target)}: {verdict}]"
        shown = f"{number(self.value)} {self.unit}".rstrip()
        return f"  {self.name:<52} {shown:>18}{aim}" + (f"  {self.note}" if self.note else "")


def number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


@dataclass(slots=True)
class Report:
    """One benchmark's figures."""

    name: str
    conditions: str
    lines: list[Line] = field(default_factory=list)

    def add(
        self,
        name: str,
        value: float,
        unit: str = "",
        *,
        target: float | None = None,
        at_most: bool = False,
        note: str = "",
        doubt: str = "",
    ) -> None:
        line = Line(name, value, unit, target, at_most, note, doubt)
        self.lines.append(line)
        print(line.text(), flush=True)

    def as_dict(self) -> dict[str, Any]:
        lines = [{**asdict(line), "met": line.met} for line in self.lines]
        return {"name": self.name, "conditions": self.conditions, "lines": lines}
