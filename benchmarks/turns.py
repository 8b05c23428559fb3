"""One turn of a session without sockets: from the bytes of a request to the bytes of its reply, written to the journal.

What it takes is processor time of this thread, and the least of many short rounds counts: that hardly changes when
other processes use the machine, so that two revisions can be compared on a busy one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from benchmarks import exchanges
from benchmarks.exchanges import Client, Streams
from benchmarks.report import Report
from benchmarks.settings import Run

from penstock.doors.blipmq import session as blipmq

TITLE: Final = "processor time of one turn, no sockets, written"
ROUNDS: Final = 150
TURNS: Final = 50


def measure(run: Run, report: Report) -> None:
    for in_flight in (1, 64):
        client = Client(os.path.join(run.directory, f"poll-{in_flight}"), blipmq.DOOR)
        messages = (ROUNDS * TURNS + 1) * in_flight
        seconds = _least(exchanges.blipmq_poll(client, messages, in_flight, size=64))
        client.broker.close()
        name = f"BlipMQ, 64 B, ACK and POLL, {in_flight} in flight"
        report.add(name, 1e6 * seconds / in_flight, "µs", note="for one delivery")
    for verb, table in (("write", exchanges.WRITES), ("read", exchanges.READS)):
        for name, (door, prepare) in table.items():
            if (name, verb) == ("BlipMQ", "read"):
                continue  # measured above
            client = Client(os.path.join(run.directory, f"{name}-{verb}"), door)
            seconds = _least(prepare(client))
            client.broker.close()
            report.add(f"{name}, {verb} one record of 1 KiB", 1e6 * seconds, "µs")
    for size, frames, fan_out in ((256, 1, 1), (256, 1, 10), (256, 3, 1), (256, 3, 10)):
        streams = Streams(os.path.join(run.directory, f"felix-{size}-{frames}-{fan_out}"), fan_out)
        seconds = _least(exchanges.felix_deliver(streams, size, frames), rounds=ROUNDS // 5)
        streams.broker.close()
        name = f"Felix, {frames} x 64 of {size} B at once, to {fan_out} subscribers"
        report.add(name, 1e6 * seconds / frames, "µs", note="for one batch")


def about(_run: Run) -> str:
    return f"the least of {ROUNDS} rounds of {TURNS} turns"


def _least(turn: Callable[[], None], rounds: int = ROUNDS) -> float:
    found = []
    for _ in range(rounds):
        began = time.thread_time()
        for _ in range(TURNS):
            turn()
        found.append((time.thread_time() - began) / TURNS)
    return min(found)
