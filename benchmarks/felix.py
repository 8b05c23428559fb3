"""Felix over QUIC: the original's profiles, and beside each what the QUIC library does on the same machine with nothing
above it: relays that hand on the same bytes (`felix_relay`), with the same client. The target is set against the
library as it comes; the relay on the broker's own socket code, which is quicker, is told beside it.

Broker and client have one of two processors each, so publishing and all subscribers share one. With `--against`, a
broker of another tree takes part in every round, and both are compared by their processor time, too.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

import msgspec
from benchmarks import felix_load as load
from benchmarks.broker import BrokerProcess, cpu_seconds, free_port
from benchmarks.other_tree import packages_of
from benchmarks.report import Report, Sample, latency, merged, percentile, ratios
from benchmarks.settings import Run

from penstock.wire.felix.codec.binary import Batch, encode_batch, encode_events
from penstock.wire.felix.frames import frame

TITLE: Final = "Felix: publish to delivery over QUIC, and the cache, beside a bare relay"
SCOPE: Final = {"tenant_id": "bench", "namespace": "default"}
STREAM: Final = "events"
BATCH: Final = 64
SIZES: Final = (256, 1024, 4096)
FAN_OUT: Final = (1, 10)
CONCURRENCY: Final = 32
TARGET: Final = 0.7  # of the bare relay
NO_TABLES: Final = {"TABLES__ENABLED": "false"}  # else a third process wants a processor


def about(run: Run) -> str:
    return f"{_rounds(run)} rounds, interleaved; written"


def _rounds(run: Run) -> int:
    return 2 if run.quick else 5


def measure(run: Run, report: Report) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(run.broker("written", NO_TABLES, felix=True))
        bare, own = (stack.enter_context(_relay(run, kind)) for kind in ("library", "own"))
        other = None
        if run.against:
            packages = packages_of(run.against)
            other = stack.enter_context(run.broker("written", NO_TABLES, felix=True, packages=packages))
        rivals = Rivals(broker, bare, own, other)
        for fan_out in FAN_OUT:
            for size in SIZES:
                _throughput(run, report, rivals, size, fan_out)
        for fan_out in () if run.against else FAN_OUT:
            for size in SIZES[:2]:
                _latency(run, report, rivals, size, fan_out)
        for name in ("put", "get"):
            _cache(run, report, rivals, name)


# -- what is sent


def _json(**fields: object) -> bytes:
    return frame(msgspec.json.encode(fields))


def _auth() -> bytes:
    return _json(type="auth", tenant_id="bench", token="any", client_flags=63)


def _subscribe() -> bytes:
    return _auth() + _json(type="subscribe", **SCOPE, stream=STREAM)


def _greeting(kind: bytes, size: int) -> bytes:
    """To the relay."""
    return kind + size.to_bytes(4)


# -- profiles


def _throughput(run: Run, report: Report, rivals: Rivals, size: int, fan_out: int) -> None:
    payloads = [os.urandom(size)] * BATCH
    sent = encode_batch(Batch("bench", "default", STREAM, payloads))
    relayed = encode_events(payloads, None, 0)
    total = (16 if run.quick else 128) << 20
    frames = max(total // (size * BATCH) // (1 if fan_out == 1 else 4), 1)

    def ours(port: int) -> load.Throughput:
        return load.Throughput(port, _auth(), sent, BATCH, frames, _subscribe(), fan_out)

    def theirs(port: int) -> load.Throughput:
        return load.Throughput(port, _greeting(b"p", len(relayed)), relayed, BATCH, frames, _greeting(b"s", 1), fan_out)

    found = rivals.compare(run, ours, theirs, lambda: _claim_memory(run.directory, 2 * frames * len(sent)))
    rate, scale = merged(found.broker).rate, size / 1e6
    note = (
        f"{rate:,.0f} events/s, {rate * scale:.0f} MB/s to each; library {merged(found.bare).rate * scale:.0f}; "
        f"own relay {merged(found.own).rate * scale:.0f}, ratio {found.ratio(found.own):.2f}; "
        f"processor time for an event: {found.times(2)}"
    )
    name = f"{size} B in batches of {BATCH}, fan-out {fan_out}: ratio to library"
    report.add(name, found.ratio(found.bare), target=TARGET, note=note)


def _latency(run: Run, report: Report, rivals: Rivals, size: int, fan_out: int) -> None:
    payload = os.urandom(size)
    published = _json(type="publish", **SCOPE, stream=STREAM, payload=payload, request_id=1, ack="per_message")
    relayed = encode_events([payload], None, 0)
    count, warm_up = (300, 50) if run.quick else (2000, 200)

    def ours(port: int) -> load.Latency:
        return load.Latency(port, _auth(), published, count, warm_up, _subscribe(), fan_out)

    def theirs(port: int) -> load.Latency:
        greeting = _greeting(b"P", len(relayed))
        return load.Latency(port, greeting, relayed, count, warm_up, _greeting(b"s", 1), fan_out)

    found = rivals.compare(run, ours, theirs)
    whole = merged(found.broker)
    note = (
        f"{latency(whole)}, p999 {1000 * percentile(whole.latencies, 0.999):.3f} ms; "
        f"library {latency(merged(found.bare))}; own relay {latency(merged(found.own))}"
    )
    name = f"{size} B one at a time, fan-out {fan_out}: p50"
    report.add(name, 1000 * percentile(whole.latencies, 0.5), "ms", note=note)


def _cache(run: Run, report: Report, rivals: Rivals, name: str) -> None:
    scope = {**SCOPE, "cache": "primary"}
    value: dict[str, object] = {"value": os.urandom(256)} if name == "put" else {}
    ttl: dict[str, object] = {"ttl_ms": None} if name == "put" else {}
    frames = tuple(  # fields in the order of the original's clients
        _json(type=f"cache_{name}", **scope, key=f"key-{number}", **value, request_id=1, **ttl)
        for number in range(CONCURRENCY)
    )
    count, warm_up = (2000, 200) if run.quick else (20_000, 2000)
    same = tuple(_padded(one) for one in frames)

    def ours(port: int) -> load.Asking:
        return load.Asking(port, _auth(), frames, count, warm_up)

    def theirs(port: int) -> load.Asking:
        return load.Asking(port, _greeting(b"q", len(same[0])), same, count, warm_up)

    found = rivals.compare(run, ours, theirs)
    whole = merged(found.broker)
    note = (
        f"{latency(whole)}; library {merged(found.bare).rate:,.0f} /s, ratio {found.ratio(found.bare):.2f}; "
        f"own relay {merged(found.own).rate:,.0f} /s, ratio {found.ratio(found.own):.2f}; "
        f"processor time for a request: {found.times(1)}"
    )
    report.add(f"cache {name} of 256 B, {CONCURRENCY} at once", whole.rate, "/s", note=note)


def _padded(request: bytes) -> bytes:
    """All of one size, so that the relay can count them."""
    return request.ljust(512)


class Found(NamedTuple):
    """Rounds of each, one after the other."""

    broker: list[Sample]
    bare: list[Sample]
    own: list[Sample]
    other: list[Sample]  # of the tree to compare with; empty if there is none
    cpu: dict[str, list[float]]  # of each, µs of processor time for an event or a request, in every round

    def ratio(self, to: list[Sample]) -> float:
        return ratios([one.rate for one in self.broker], [one.rate for one in to])

    def times(self, digits: int) -> str:
        """The processor time of each; with another tree, how the two compare."""
        text = ", ".join(f"{name} {statistics.median(each):.{digits}f} µs" for name, each in self.cpu.items() if each)
        if self.other:
            cpu, rate = ratios(self.cpu["broker"], self.cpu["other tree"]), self.ratio(self.other)
            text += f"; to the other tree: processor time {cpu:.2f}, rate {rate:.2f}"
        return text


class Rivals(NamedTuple):
    broker: BrokerProcess
    bare: Bare
    own: Bare
    other: BrokerProcess | None

    def compare(
        self,
        run: Run,
        ours: Callable[[int], load.Job],
        theirs: Callable[[int], load.Job],
        prepare: Callable[[], None] | None = None,
    ) -> Found:
        """`prepare` is called before each round of a broker."""
        found = Found([], [], [], [], {name: [] for name in ("broker", "other tree", "library", "own relay")})
        brokers = [("broker", self.broker, found.broker)]
        if self.other is not None:
            brokers.append(("other tree", self.other, found.other))
        relays = (("library", self.bare, found.bare), ("own relay", self.own, found.own))
        for number in range(_rounds(run)):
            for name, broker, samples in brokers[:: -1 if number % 2 else 1]:
                if prepare is not None:
                    prepare()
                _round(ours(broker.felix_port), broker.pid, samples, found.cpu[name])
            for name, relay, samples in relays:
                _round(theirs(relay.port), relay.process.pid, samples, found.cpu[name])
        return found


def _round(job: load.Job, pid: int, samples: list[Sample], cpu: list[float]) -> None:
    before = cpu_seconds(pid)
    sample = load.run(job)
    samples.append(sample)
    cpu.append(1e6 * (cpu_seconds(pid) - before) / sample.count)


def _claim_memory(directory: str, size: int) -> None:
    """Leave free memory to the kernel that this machine already has, as much as the journal is about to take.

    A virtual machine may return free memory to its host within seconds. To get it back takes ten times as long as
    to copy to it, and the relays need none."""
    block = bytes(1 << 20)
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(size >> 20):
            file.write(block)


class Bare:
    """A relay, in a process of its own."""

    def __init__(self, directory: str, kind: str) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "benchmarks.felix_relay", kind, str(self.port), directory]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        if self.process.stdout.readline() != b"ready\n":
            raise RuntimeError("the relay did not start")


@contextmanager
def _relay(run: Run, kind: str) -> Iterator[Bare]:
    bare = Bare(run.directory, kind)
    try:
        yield bare
    finally:
        bare.process.kill()
        bare.process.wait()
