"""Felix over QUIC: the original's profiles, and beside each what the QUIC library does on the same machine with nothing
above it: a relay that hands on the same bytes (`felix_relay`), with the same client.

Broker and client have one of two processors each, so publishing and all subscribers share one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

import msgspec
from benchmarks import felix_load as load
from benchmarks.broker import BrokerProcess, cpu_seconds, free_port
from benchmarks.report import Report, Sample, latency, merged, percentile, ratios
from benchmarks.settings import Run

from penstock.protocols.felix.binary import Batch, encode_batch, encode_events
from penstock.protocols.felix.frames import frame

TITLE: Final = "Felix: publish to delivery over QUIC, and the cache, beside a bare relay"
SCOPE: Final = {"tenant_id": "bench", "namespace": "default"}
STREAM: Final = "events"
BATCH: Final = 64
SIZES: Final = (256, 1024, 4096)
FAN_OUT: Final = (1, 10)
CONCURRENCY: Final = 32
TARGET: Final = 0.7  # of the bare relay


def about(run: Run) -> str:
    return f"{_rounds(run)} rounds, interleaved; written"


def _rounds(run: Run) -> int:
    return 2 if run.quick else 5


def measure(run: Run, report: Report) -> None:
    with run.broker("written", felix=True) as broker, _relay(run) as bare:
        for fan_out in FAN_OUT:
            for size in SIZES:
                _throughput(run, report, broker, bare, size, fan_out)
        for fan_out in FAN_OUT:
            for size in SIZES[:2]:
                _latency(run, report, broker, bare, size, fan_out)
        for name in ("put", "get"):
            _cache(run, report, broker, bare, name)


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


def _throughput(run: Run, report: Report, broker: BrokerProcess, bare: Bare, size: int, fan_out: int) -> None:
    payloads = [os.urandom(size)] * BATCH
    sent = encode_batch(Batch("bench", "default", STREAM, payloads))
    relayed = encode_events(payloads, None, 0)
    total = (16 if run.quick else 128) << 20
    frames = max(total // (size * BATCH) // (1 if fan_out == 1 else 4), 1)
    ours = load.Throughput(broker.felix_port, _auth(), sent, BATCH, frames, _subscribe(), fan_out)
    greeting = _greeting(b"p", len(relayed))
    theirs = load.Throughput(bare.port, greeting, relayed, BATCH, frames, _greeting(b"s", 1), fan_out)
    own, other, used = _interleaved(run, broker, lambda: load.run(ours), lambda: load.run(theirs))
    rate = merged(own).rate
    note = (
        f"{rate:,.0f} events/s, {rate * size / 1e6:.0f} MB/s to each; the relay {merged(other).rate * size / 1e6:.0f}; "
        f"{1e6 * used / merged(own).count:.2f} µs of the broker's processor time an event"
    )
    name = f"{size} B in batches of {BATCH}, fan-out {fan_out}: ratio to relay"
    report.add(name, ratios([one.rate for one in own], [one.rate for one in other]), target=TARGET, note=note)


def _latency(run: Run, report: Report, broker: BrokerProcess, bare: Bare, size: int, fan_out: int) -> None:
    payload = os.urandom(size)
    published = _json(type="publish", **SCOPE, stream=STREAM, payload=payload, request_id=1, ack="per_message")
    relayed = encode_events([payload], None, 0)
    count, warm_up = (300, 50) if run.quick else (2000, 200)
    ours = load.Latency(broker.felix_port, _auth(), published, count, warm_up, _subscribe(), fan_out)
    greeting = _greeting(b"P", len(relayed))
    theirs = load.Latency(bare.port, greeting, relayed, count, warm_up, _greeting(b"s", 1), fan_out)
    own, other, _ = _interleaved(run, broker, lambda: load.run(ours), lambda: load.run(theirs))
    p50 = [percentile(one.latencies, 0.5) for one in own], [percentile(one.latencies, 0.5) for one in other]
    all_own = merged(own)
    note = (
        f"{latency(all_own)}, p999 {1000 * percentile(all_own.latencies, 0.999):.3f} ms; relay {latency(merged(other))}"
    )
    name = f"{size} B one at a time, fan-out {fan_out}: relay's p50 / ours"
    report.add(name, median([b / a for a, b in zip(*p50, strict=True)]), note=note)


def _cache(run: Run, report: Report, broker: BrokerProcess, bare: Bare, name: str) -> None:
    scope = {**SCOPE, "cache": "primary"}
    value: dict[str, object] = {"value": os.urandom(256), "request_id": 1, "ttl_ms": None} if name == "put" else {}
    frames = tuple(
        _json(type=f"cache_{name}", **scope, key=f"key-{number}", **(value or {"request_id": 1}))
        for number in range(CONCURRENCY)
    )
    count, warm_up = (2000, 200) if run.quick else (20_000, 2000)
    ours = load.Asking(broker.felix_port, _auth(), frames, count, warm_up)
    same = tuple(_padded(one) for one in frames)
    theirs = load.Asking(bare.port, _greeting(b"q", len(same[0])), same, count, warm_up)
    own, other, used = _interleaved(run, broker, lambda: load.run(ours), lambda: load.run(theirs))
    whole = merged(own)
    note = (
        f"{whole.rate:,.0f} /s, {latency(whole)}; the relay {merged(other).rate:,.0f} /s; "
        f"{1e6 * used / whole.count:.0f} µs of the broker's processor time"
    )
    what = f"cache {name} of 256 B, {CONCURRENCY} at once: ratio to relay"
    report.add(what, ratios([one.rate for one in own], [one.rate for one in other]), note=note)


def _padded(request: bytes) -> bytes:
    """All of one size, so that the relay can count them."""
    return request.ljust(512)


def _interleaved(
    run: Run, broker: BrokerProcess, ours: Callable[[], Sample], theirs: Callable[[], Sample]
) -> tuple[list[Sample], list[Sample], float]:
    own, other = [], []
    used = 0.0
    for _ in range(_rounds(run)):
        before = broker.cpu_seconds()
        own.append(ours())
        used += broker.cpu_seconds() - before
        other.append(theirs())
    return own, other, used


class Bare:
    """The relay, in a process of its own."""

    def __init__(self, directory: str) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "benchmarks.felix_relay", str(self.port), directory]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        if self.process.stdout.readline() != b"ready\n":
            raise RuntimeError("the relay did not start")

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)


@contextmanager
def _relay(run: Run) -> Iterator[Bare]:
    bare = Bare(run.directory)
    try:
        yield bare
    finally:
        bare.process.kill()
        bare.process.wait()
