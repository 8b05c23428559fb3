"""One turn of a session without sockets: from the bytes of a request to the bytes of its reply, written to the journal.

What it takes is processor time of this thread, and the least of many short rounds counts: that hardly changes when
other processes use the machine, so that two revisions can be compared on a busy one. `--against` does that: the same
turns on the code of both, each in processes of its own, one after the other and several times.
"""

from __future__ import annotations

import os
import shutil
import statistics
from typing import Final

from benchmarks import exchange_times, other_tree
from benchmarks.exchange_times import ROUNDS, TURNS
from benchmarks.report import Report, number
from benchmarks.settings import Run

import penstock

TITLE: Final = "processor time of one turn, no sockets, written"


def measure(run: Run, report: Report) -> None:
    if run.against:
        _compare(run, report, run.against)
        return
    for name, microseconds, note in exchange_times.rows(run.directory):
        report.add(name, microseconds, "µs", note=note)


def about(run: Run) -> str:
    least = f"the least of {ROUNDS} rounds of {TURNS} turns"
    return f"{least}; {run.rounds} times on this tree and on {run.against}, interleaved" if run.against else least


def _compare(run: Run, report: Report, against: str) -> None:
    """Least times of this tree by those of the other."""
    trees = (other_tree.packages_of(against), os.path.dirname(os.path.dirname(os.path.abspath(penstock.__file__))))
    found: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})  # before and after, a figure of each time
    for round_ in range(run.rounds):
        for which in (0, 1) if round_ % 2 else (1, 0):
            directory = os.path.join(run.directory, "turns")
            for name, microseconds, _note in other_tree.rows_of(trees[which], directory):
                found[which].setdefault(name, []).append(microseconds)
            shutil.rmtree(directory)
    for name, before in found[0].items():
        after = found[1][name]
        medians = f"{number(statistics.median(before))} → {number(statistics.median(after))} µs"
        note = f"least {number(min(before))} → {number(min(after))} µs, median {medians}"
        report.add(name, min(after) / min(before), "of before", note=note)
