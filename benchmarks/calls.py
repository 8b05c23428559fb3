"""How much code one request passes through: Python calls, and distinct source files, between its bytes and its reply.

Counted by `sys.setprofile`, for one record of 1 KiB, without sockets, when the connection and the topic have been used
before: every call of a function, method, generator or comprehension that is written in `penstock`, from
`session.receive()` until nothing is left to do, the write to the journal included. Functions of Python and its
libraries do not count; neither do compiled modules, so this is for the source as it is. The median of many turns is
shown: now and then one has to do more.

Felix has no request to read: its second line is a publish until one subscriber has the record.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from benchmarks import exchanges
from benchmarks.exchanges import Client, Streams
from benchmarks.report import Report
from benchmarks.settings import Run

import penstock

TITLE: Final = "calls and files that one request passes through"
WARM_UP: Final = 20  # turns
TURNS: Final = 101
_SOURCE: Final = os.path.dirname(os.path.abspath(penstock.__file__)) + os.sep


def measure(run: Run, report: Report) -> None:
    for verb, table in (("write", exchanges.WRITES), ("read", exchanges.READS)):
        for name, (door, prepare) in table.items():
            client = Client(os.path.join(run.directory, f"calls-{name}-{verb}"), door)
            _add(report, f"{name}, {verb}", prepare(client))
            client.broker.close()
    for verb, fan_out in (("write", 0), ("read", 1)):
        streams = Streams(os.path.join(run.directory, f"calls-felix-{verb}"), fan_out)
        turn = (
            exchanges.felix_deliver(streams, exchanges.SIZE, records=1) if fan_out else exchanges.felix_publish(streams)
        )
        _add(report, f"Felix, {verb}", turn)
        streams.broker.close()


def about(_run: Run) -> str:
    return f"median of {TURNS} turns"


def _add(report: Report, name: str, turn: Callable[[], None]) -> None:
    for _ in range(WARM_UP):
        turn()
    found = [_count(turn) for _ in range(TURNS)]
    calls, files, first, first_files = (round(statistics.median(column)) for column in zip(*found, strict=True))
    note = f"{files} files; {first} calls and {first_files} files before receive() returns"
    report.add(name, calls, "calls", note=note)


def _count(turn: Callable[[], None]) -> tuple[int, int, int, int]:
    """(calls, files) of one turn, and until `receive` returns for the first time."""
    calls: list[str] = []
    first: list[str] = []

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if code.co_filename.startswith(_SOURCE):
            if event == "call":
                calls.append(code.co_filename)
            elif event == "return" and code.co_name == "receive" and not first:
                first.extend(calls)

    sys.setprofile(profile)
    try:
        turn()
    finally:
        sys.setprofile(None)
    return len(calls), len(set(calls)), len(first), len(set(first))
