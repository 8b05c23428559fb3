"""The two QUIC libraries for Python, each as it comes, in one run: which one should the broker be built on?

Two processes on loopback, each library's own asyncio server and client: one stream in one direction, and one request at
a time. Processor time is that of both processes together.
"""

from __future__ import annotations

import asyncio
import datetime
import importlib
import os
import ssl
import time
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Final

import uvloop
from benchmarks.broker import cpu_seconds
from benchmarks.report import Report, Sample, latency, merged
from benchmarks.settings import Run

from penstock.transport.quic.certificate import kept, paths

TITLE: Final = "QUIC libraries, one stream and one request at a time"
LIBRARIES: Final = ("qh3", "aioquic")
SIZES: Final = (1200, 4096, 16_000, 32_000, 65_000)  # bytes of a datagram; the last is about what loopback carries
WINDOW: Final = 16 << 20
CHUNK: Final = 256 << 10
ASKED: Final = 256  # bytes of a request, and of its answer
PATIENCE: Final = 10.0  # seconds

_CONTEXT = get_context("fork")


def about(run: Run) -> str:
    return f"{_rounds(run)} rounds, interleaved"


def _rounds(run: Run) -> int:
    return 1 if run.quick else 3


@dataclass(frozen=True, slots=True)
class Outcome:
    sample: Sample
    cpu: float  # seconds, of both processes


def measure(run: Run, report: Report) -> None:
    kept(run.directory, datetime.datetime.now(datetime.UTC))
    pem = paths(run.directory)
    amount = (16 if run.quick else 64) << 20
    for size in SIZES:
        moved: dict[str, list[Outcome]] = {name: [] for name in LIBRARIES}
        asked: dict[str, list[Outcome]] = {name: [] for name in LIBRARIES}
        for _ in range(_rounds(run)):
            for name in LIBRARIES:
                moved[name] += _try(_Job(name, size, pem, amount=amount))
                asked[name] += _try(_Job(name, size, pem, requests=500 if run.quick else 2000))
        for name in LIBRARIES:
            _tell(report, f"{name}, datagrams of {size} B", moved[name], asked[name])


def _tell(report: Report, name: str, moved: list[Outcome], asked: list[Outcome]) -> None:
    if not moved:
        report.add(f"{name}: one stream", 0.0, "MB/s", note="does not work")
    else:
        whole = merged([outcome.sample for outcome in moved])
        cpu = sum(outcome.cpu for outcome in moved) / whole.count * 1e9
        report.add(f"{name}: one stream", whole.rate / 1e6, "MB/s", note=f"{cpu:.1f} s of processor time for a GB")
    if asked:
        whole = merged([outcome.sample for outcome in asked])
        cpu = sum(outcome.cpu for outcome in asked) / whole.count * 1e6
        note = f"{latency(whole)}, {cpu:.0f} µs of processor time"
        report.add(f"{name}: one request at a time", whole.rate, "/s", note=note)


@dataclass(frozen=True, slots=True)
class _Job:
    library: str
    size: int
    pem: tuple[str, str]  # files: certificate, key
    amount: int = 0  # bytes to send in one direction, or
    requests: int = 0


def _try(job: _Job) -> list[Outcome]:
    """One outcome, or none if the library cannot do it."""
    ports, results = _CONTEXT.Queue(), _CONTEXT.Queue()
    server = _CONTEXT.Process(target=_serve, args=(job, ports), daemon=True)
    server.start()
    client = _CONTEXT.Process(target=_ask, args=(job, ports, results, server.pid), daemon=True)
    client.start()
    client.join(PATIENCE * 3)
    try:
        if client.exitcode != 0:
            return []
        sample, cpu = results.get(timeout=PATIENCE)
        return [Outcome(sample, cpu)]
    finally:
        client.kill()
        server.kill()
        server.join()


def _configuration(job: _Job, *, client: bool) -> Any:
    module = importlib.import_module(f"{job.library}.quic.configuration")
    configuration = module.QuicConfiguration(
        is_client=client, alpn_protocols=["bench"], max_datagram_size=job.size, max_data=WINDOW, max_stream_data=WINDOW
    )
    if job.library == "qh3":
        configuration.probe_datagram_size = False  # the size is given
    if client:
        configuration.verify_mode = ssl.CERT_NONE
        configuration.server_name = "localhost"
    else:
        configuration.load_cert_chain(*job.pem)
    return configuration


def _serve(job: _Job, ports: Any) -> None:
    """Answers every request with as many bytes, or all of `amount` with one."""

    async def main() -> None:
        library = importlib.import_module(f"{job.library}.asyncio")
        events = importlib.import_module(f"{job.library}.quic.events")

        class Peer(library.QuicConnectionProtocol):  # type: ignore[name-defined, misc]
            received = 0

            def quic_event_received(self, event: Any) -> None:
                if not isinstance(event, events.StreamDataReceived):
                    return
                self.received += len(event.data)
                if job.requests:
                    self._quic.send_stream_data(event.stream_id, event.data)
                elif self.received >= job.amount:
                    self._quic.send_stream_data(event.stream_id, b"x")
                else:
                    return
                self.transmit()

        server = await library.serve(
            "127.0.0.1", 0, configuration=_configuration(job, client=False), create_protocol=Peer
        )
        ports.put(server._transport.get_extra_info("sockname")[1])
        await asyncio.sleep(PATIENCE * 6)

    uvloop.run(main())


def _ask(job: _Job, ports: Any, results: Any, server: int) -> None:
    async def main() -> tuple[Sample, float]:
        library = importlib.import_module(f"{job.library}.asyncio")
        port = ports.get(timeout=PATIENCE)
        async with library.connect("127.0.0.1", port, configuration=_configuration(job, client=True)) as client:
            reader, writer = await client.create_stream()
            before = cpu_seconds(os.getpid()) + cpu_seconds(server)
            sample = await (_requests(job, reader, writer) if job.requests else _stream(job, reader, writer))
            return sample, cpu_seconds(os.getpid()) + cpu_seconds(server) - before

    try:
        results.put(uvloop.run(main()))
    except Exception:  # noqa: BLE001 - it is told as "does not work"
        os._exit(1)


async def _stream(job: _Job, reader: Any, writer: Any) -> Sample:
    chunk = os.urandom(CHUNK)
    began = time.perf_counter()
    for _ in range(job.amount // CHUNK):
        writer.write(chunk)
        await asyncio.sleep(0)
    await asyncio.wait_for(reader.readexactly(1), PATIENCE * 2)
    return Sample(job.amount, time.perf_counter() - began)


async def _requests(job: _Job, reader: Any, writer: Any) -> Sample:
    request, latencies = os.urandom(ASKED), []
    began = now = time.perf_counter()
    for _ in range(job.requests):
        sent = now
        writer.write(request)
        await asyncio.wait_for(reader.readexactly(ASKED), PATIENCE)
        now = time.perf_counter()
        latencies.append(now - sent)
    return Sample(job.requests, now - began, latencies)
