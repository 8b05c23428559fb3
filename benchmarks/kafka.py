"""The cost of a journal on Kafka: one replica beside the file engine at `synced`, and beside librdkafka alone.

In one process, without doors. Latency is that of one append at a time; throughput that of appends with 32 MiB on their
way, which become commit groups of up to 2 MiB. librdkafka alone sends a record of the same size for each append, also
with 32 MiB on their way, which it collects in batches for 5 ms, as it does by default; in the test of latency for 0 ms,
as the journal's producer. Neither side spends processor time on waiting. The same is done
`--rounds` times, in turn, and medians are shown: a machine that is slower for a while is slower for all. A standby is a
process that follows the journal. Processor time is that of a gigabyte, in the test of throughput: of the process that
writes, and of the Kafka nodes together, if they are on this machine.

    make bench-kafka        three nodes of its own, on this machine
    python benchmarks/kafka.py HOST:PORT,HOST:PORT [--replication 3] [--seconds 3] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from penstock.log.committer import ThreadCommitter
from penstock.log.engine import CommitGroup, Engine, Records, partition_id
from penstock.log.file_engine import FileEngine
from penstock.log.files import OsFiles
from penstock.log.kafka.checkpoint import JournalSource
from penstock.log.kafka.client import KafkaJournal, snapshots_topic
from penstock.log.kafka.opening import ReplicaOpening
from penstock.log.kafka.topics import ensure_topics
from penstock.log.kafka.url import parse
from penstock.log.settings import LogSettings

PARTITION = partition_id(1, 0)
SIZES = (1 << 10, 64 << 10, 1 << 20)  # bytes of one append
PENDING = 32 << 20  # bytes on their way, in the test of throughput
BURST = 256 << 10  # bytes that are appended, or given to librdkafka, between two looks at what was answered
MESSAGE_BYTES = 81 << 20
FILES, CELL, FOLLOWED, BARE = "files, synced", "Kafka", "Kafka, with a standby", "librdkafka alone"


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


async def as_many_as_go(engine: Engine, size: int, seconds: float) -> tuple[int, float]:
    """Bytes, and the seconds that they took."""
    value, sent, burst = bytes(size), 0, max(1, BURST // size)
    group, committed = None, asyncio.Event()
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        for _ in range(burst):
            latest = engine.append([Records(PARTITION, [value])]).group
            if latest is not group:
                group = latest
                group.on_done(lambda _: committed.set())
        sent += burst * size
        committed.clear()
        await asyncio.sleep(0)
        while engine.pending_bytes >= PENDING:
            await committed.wait()
            committed.clear()
    while engine.pending_bytes:
        committed.clear()
        await committed.wait()
    return sent, time.monotonic() - began


class Bare:
    """librdkafka with the options of the journal's producer, and nothing around it."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer, self._topic = producer, topic
        self._on_their_way = 0
        self.one_at_a_time(1, 0.1)  # it is told its id with the first record, and so was the journal's with its claim

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

    def as_many_as_go(self, size: int, seconds: float) -> tuple[int, float]:
        value, sent, burst = bytes(size), 0, max(1, BURST // size)
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            for _ in range(burst):
                self._send(value)
            sent += burst * size
            self._producer.poll(0)
            while self._on_their_way >= PENDING:
                self._producer.poll(0.1)
        while self._on_their_way:
            self._producer.poll(1)
        return sent, time.monotonic() - began


class Processors:
    """Processor seconds: of this process, and of the nodes."""

    def __init__(self, nodes: Callable[[], float] = lambda: 0.0) -> None:
        self._nodes = nodes

    def used(self) -> tuple[float, float]:
        return time.process_time(), self._nodes()


class Figure(NamedTuple):
    p50: float  # ms
    p99: float
    rate: float  # MB/s
    process: float  # processor seconds for a gigabyte
    nodes: float


class Figures:
    """Results of all rounds, by what was measured and the size of an append."""

    def __init__(self, processors: Processors) -> None:
        self._found: dict[tuple[str, int], list[Figure]] = {}
        self._processors = processors

    def measure(self, name: str, size: int, times: list[float], throughput: Callable[[], tuple[int, float]]) -> None:
        """`throughput` returns bytes and seconds."""
        times = sorted(times)
        before = self._processors.used()
        sent, seconds = throughput()
        process, nodes = (after - old for after, old in zip(self._processors.used(), before, strict=True))
        p50, p99 = (times[len(times) * percent // 100] * 1e3 for percent in (50, 99))
        figure = Figure(p50, p99, sent / seconds / 1e6, process / sent * 1e9, nodes / sent * 1e9)
        self._found.setdefault((name, size), []).append(figure)

    def _median(self, name: str, size: int) -> Figure:
        return Figure(*map(median, zip(*self._found[name, size], strict=True)))

    def show(self) -> None:
        heads = ("Append", "Journal", "p50, ms", "p99, ms", "MB/s", "of librdkafka", "of files", "process", "nodes")
        print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
        for size in SIZES:
            bare, files = self._median(BARE, size).rate, self._median(FILES, size).rate
            for name in (FILES, CELL, FOLLOWED, BARE):
                p50, p99, rate, process, nodes = self._median(name, size)
                rates = f"{rate:.0f} | {rate / bare:.2f} | {rate / files:.2f} | {process:.1f} | {nodes:.1f}"
                print(f"| {size >> 10} KiB | {name} | {p50:.2f} | {p99:.2f} | {rates} |")


def measure(
    figures: Figures, name: str, open_engine: Callable[[asyncio.AbstractEventLoop], Engine], seconds: float
) -> None:
    loop = asyncio.new_event_loop()
    run = loop.run_until_complete
    engine = open_engine(loop)
    for size in SIZES:
        times = run(one_at_a_time(engine, size, seconds))
        figures.measure(name, size, times, partial(run, as_many_as_go(engine, size, seconds)))
    engine.close()
    loop.close()


def open_journal(url: str) -> tuple[KafkaJournal, JournalSource]:
    address = parse(url)
    source = ensure_topics(address, MESSAGE_BYTES)
    options = address.client_options()
    return KafkaJournal(options, address.topic, 0, message_bytes=MESSAGE_BYTES, delivery_seconds=30), source


@contextmanager
def made_journal(servers: str, copies: int) -> Iterator[tuple[str, KafkaJournal, JournalSource]]:
    """A journal for one part: its gigabytes go again."""
    options = f"replication={copies}&min_insync={min(2, copies)}&allow_unsafe=true"
    url = f"kafka://{servers}/bench-{secrets.token_hex(4)}?{options}"
    journal, source = open_journal(url)
    try:
        yield url, journal, source
    finally:
        journal.close()
        topic = parse(url).topic
        admin = AdminClient({"bootstrap.servers": servers})
        for deleted in admin.delete_topics([topic, snapshots_topic(topic)]).values():
            deleted.result(30)


def follow(url: str, directory: str) -> None:
    """A standby, until the process is ended."""
    journal, source = open_journal(url)
    loop = asyncio.new_event_loop()
    replica = ReplicaOpening(journal, source, OsFiles(directory), LogSettings(), loop, clock).replica
    replica.catch_up()
    print("follows", flush=True)
    while True:
        replica.follow(0.2)


@contextmanager
def standby(url: str, directory: str) -> Iterator[None]:
    command = [sys.executable, __file__, url, "--follow", directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"follows\n"
        try:
            yield
        finally:
            process.kill()


def one_round(figures: Figures, servers: str, copies: int, seconds: float, number: int) -> None:
    """In an order that is another each time."""

    with tempfile.TemporaryDirectory() as directory:

        def on_files() -> None:
            def opened(loop: asyncio.AbstractEventLoop) -> Engine:
                files = OsFiles(f"{directory}/files")
                return FileEngine(files, LogSettings(), committer=ThreadCommitter(loop), clock=clock)

            measure(figures, FILES, opened, seconds)

        def on_kafka(name: str, followed: bool) -> None:
            with made_journal(servers, copies) as (url, journal, source):

                def opened(loop: asyncio.AbstractEventLoop) -> Engine:
                    files = OsFiles(f"{directory}/{name}")
                    opening = ReplicaOpening(journal, source, files, LogSettings(), loop, clock)
                    opening.replica.catch_up()
                    assert opening.own(b"{}")
                    return opening.engine

                with standby(url, f"{directory}/standby") if followed else nullcontext():
                    measure(figures, name, opened, seconds)

        def alone() -> None:
            with made_journal(servers, copies) as (url, journal, _):
                prompt = Bare(journal.new_producer(), parse(url).topic)
                batching = Bare(journal.new_producer(**{"linger.ms": 5}), parse(url).topic)
                for size in SIZES:
                    times = prompt.one_at_a_time(size, seconds)
                    figures.measure(BARE, size, times, partial(batching.as_many_as_go, size, seconds))

        parts = [on_files, lambda: on_kafka(CELL, False), lambda: on_kafka(FOLLOWED, True), alone]
        for part in parts[number % 4 :] + parts[: number % 4]:
            part()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("servers", nargs="?", help="without them: three nodes are started here, see make bench-kafka")
    parser.add_argument("--replication", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="of each figure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--follow", metavar="DIRECTORY", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        follow(options.servers, options.follow)
    with ExitStack() as stack:
        servers, processors = options.servers, Processors()
        if servers is None:
            from tests.kafka.kraft import Cluster

            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            removed_soon = "log.segment.delete.delay.ms=1000\n"
            cluster = stack.enter_context(Cluster(place / "kafka", options.replication, more=removed_soon))
            servers, processors = cluster.servers, Processors(cluster.processor_seconds)
        figures = Figures(processors)
        for number in range(options.rounds):
            one_round(figures, servers, options.replication, options.seconds, number)
    figures.show()


if __name__ == "__main__":
    main()
