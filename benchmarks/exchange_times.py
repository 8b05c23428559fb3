"""Processor time of each exchange: this thread's, and the least of many short rounds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Final

from benchmarks import exchanges
from benchmarks.exchanges import Client, Streams

from penstock.doors.blipmq import session as blipmq

ROUNDS: Final = 150
TURNS: Final = 50


def rows(directory: str) -> Iterator[tuple[str, float, str]]:
    """Name, µs, and what they are for if not for one turn."""
    for in_flight in (1, 64):
        client = Client(os.path.join(directory, f"poll-{in_flight}"), blipmq.DOOR)
        messages = (ROUNDS * TURNS + 1) * in_flight
        seconds = _least(exchanges.blipmq_poll(client, messages, in_flight, size=64))
        client.broker.close()
        yield f"BlipMQ, 64 B, ACK and POLL, {in_flight} in flight", 1e6 * seconds / in_flight, "for one delivery"
    for verb, table in (("write", exchanges.WRITES), ("read", exchanges.READS)):
        for name, (door, prepare) in table.items():
            if (name, verb) == ("BlipMQ", "read"):
                continue  # measured above
            client = Client(os.path.join(directory, f"{name}-{verb}"), door)
            seconds = _least(prepare(client))
            client.broker.close()
            yield f"{name}, {verb} one record of 1 KiB", 1e6 * seconds, ""
    streams = Streams(os.path.join(directory, "felix-write"), 0)
    seconds = _least(exchanges.felix_publish(streams))
    streams.broker.close()
    yield "Felix, write one record of 1 KiB", 1e6 * seconds, ""
    for verb in ("put", "get"):
        streams = Streams(os.path.join(directory, f"felix-{verb}"), 0)
        seconds = _least(exchanges.felix_cache(streams, verb))
        streams.broker.close()
        yield f"Felix, cache {verb} of 256 B", 1e6 * seconds, ""
    for size, frames, fan_out in ((256, 1, 1), (256, 1, 10), (256, 3, 1), (256, 3, 10), (1000, 1, 1)):
        streams = Streams(os.path.join(directory, f"felix-{size}-{frames}-{fan_out}"), fan_out)
        seconds = _least(exchanges.felix_deliver(streams, size, frames), rounds=ROUNDS // 5)
        streams.broker.close()
        name = f"Felix, {frames} x 64 of {size} B at once, to {fan_out} subscribers"
        yield name, 1e6 * seconds / frames, "for one batch"


def _least(turn: Callable[[], None], rounds: int = ROUNDS) -> float:
    found = []
    for _ in range(rounds):
        began = time.thread_time()
        for _ in range(TURNS):
            turn()
        found.append((time.thread_time() - began) / TURNS)
    return min(found)
