"""The cost of a journal on Kafka: one cell beside the file engine at `synced`, and beside librdkafka alone.

In one process, without doors. Latency is that of one append at a time; throughput that of appends with 32 MiB on their
way, which become commit groups of up to 8 MiB, beside records of at least 1 MiB by librdkafka alone. Needs Kafka:

    python benchmarks/kafka.py HOST:PORT,HOST:PORT [--replication 3] [--seconds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import tempfile
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, Message, Producer

from penstock.log.committer import ThreadCommitter
from penstock.log.engine import CommitGroup, Engine, Records, partition_id
from penstock.log.file_engine import FileEngine
from penstock.log.files import OsFiles
from penstock.log.kafka.client import KafkaJournal
from penstock.log.kafka.opening import CellOpening
from penstock.log.kafka.topics import ensure_topics
from penstock.log.kafka.url import parse
from penstock.log.settings import LogSettings

PARTITION = partition_id(1, 0)
SIZES = (1 << 10, 64 << 10, 1 << 20)  # bytes of one append
PENDING = 32 << 20  # bytes on their way, in the test of throughput
MESSAGE_BYTES = 81 << 20


def clock() -> int:
    return time.time_ns() // 1000


async def one_at_a_time(engine: Engine, size: int, seconds: float) -> list[float]:
    """Seconds that each append takes."""
    loop, times, value = asyncio.get_running_loop(), [], bytes(size)
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        done = loop.create_future()
        began = time.perf_counter()
        engine.append([Records(PARTITION, [value])]).group.on_done(done.set_result)
        group: CommitGroup = await done
        if group.error is not None:
            raise group.error
        times.append(time.perf_counter() - began)
    return times


async def as_many_as_go(engine: Engine, size: int, seconds: float) -> float:
    """Bytes per second."""
    value, sent = bytes(size), 0
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        while engine.pending_bytes < PENDING:
            engine.append([Records(PARTITION, [value])])
            sent += size
        await asyncio.sleep(0)
    while engine.pending_bytes:  # noqa: ASYNC110 - there is nothing that tells when all is done
        await asyncio.sleep(0.001)
    return sent / (time.monotonic() - began)


class Bare:
    """librdkafka with the options of the journal's producer, and nothing around it."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer, self._topic = producer, topic
        self._on_their_way = 0

    def _send(self, value: bytes) -> None:
        self._on_their_way += len(value)
        self._producer.produce(self._topic, value, partition=0, on_delivery=self._answered)

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self._on_their_way -= len(message)

    def one_at_a_time(self, size: int, seconds: float) -> list[float]:
        times, value, give_up = [], bytes(size), time.monotonic() + seconds
        while time.monotonic() < give_up:
            began = time.perf_counter()
            self._send(value)
            while self._on_their_way:
                self._producer.poll(1)
            times.append(time.perf_counter() - began)
        return times

    def as_many_as_go(self, size: int, seconds: float) -> float:
        value, sent, began = bytes(max(size, 1 << 20)), 0, time.monotonic()
        while time.monotonic() - began < seconds:
            if self._on_their_way < PENDING:
                self._send(value)
                sent += len(value)
                self._producer.poll(0)
            else:
                self._producer.poll(0.01)
        while self._on_their_way:
            self._producer.poll(1)
        return sent / (time.monotonic() - began)


def line(name: str, size: int, times: list[float], rate: float) -> None:
    times = sorted(times)
    p50, p99 = times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3
    print(f"{name:<24} {size:>8} B  p50 {p50:7.2f} ms  p99 {p99:7.2f} ms  {rate / 1e6:8.1f} MB/s", flush=True)


def measure(name: str, open_engine: Callable[[asyncio.AbstractEventLoop], Engine], seconds: float) -> None:
    loop = asyncio.new_event_loop()
    engine = open_engine(loop)
    for size in SIZES:
        times = loop.run_until_complete(one_at_a_time(engine, size, seconds))
        line(name, size, times, loop.run_until_complete(as_many_as_go(engine, size, seconds)))
    engine.close()
    loop.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("--replication", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    copies = options.replication
    address = parse(
        f"kafka://{options.servers}/bench-{secrets.token_hex(4)}"
        f"?replication={copies}&min_insync={min(2, copies)}&allow_unsafe=true"
    )
    source = ensure_topics(address, MESSAGE_BYTES)
    journal = KafkaJournal(address.client_options(), address.topic, 0, message_bytes=MESSAGE_BYTES, delivery_seconds=30)
    with tempfile.TemporaryDirectory() as directory:

        def on_kafka(loop: asyncio.AbstractEventLoop) -> Engine:
            opening = CellOpening(journal, source, OsFiles(f"{directory}/cache"), LogSettings(), loop, clock)
            opening.cell.catch_up()
            assert opening.own(b"{}")
            return opening.engine

        def on_files(loop: asyncio.AbstractEventLoop) -> Engine:
            return FileEngine(
                OsFiles(f"{directory}/files"), LogSettings(), committer=ThreadCommitter(loop), clock=clock
            )

        measure("files, synced", on_files, options.seconds)
        measure("a cell on Kafka", on_kafka, options.seconds)
        bare = Bare(journal.new_producer(), address.topic)
        for size in SIZES:
            times = bare.one_at_a_time(size, options.seconds)
            line("librdkafka alone", size, times, bare.as_many_as_go(size, options.seconds))
    journal.close()


if __name__ == "__main__":
    main()
