"""Brokers on one journal: `penstock serve --storage`, as an operator starts them, and a writer that knows what it was
told of each record."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from tests.kafka.kraft import Cluster
from tests.launcher import BrokerProcess
from tests.ports import steady_port, steady_udp_port

from penstock.clients import rustlog
from penstock.server.doors import BUILT, FELIX

TOPIC = "orders"
_names = itertools.count(1)


def new_url(cluster: Cluster, **options: str) -> str:
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"kafka://{cluster.servers}/test-{next(_names)}?{query}"


class Broker:
    """One of several with the same journal, or without a `url` one on files. Its lines are read as they come."""

    def __init__(
        self, directory: Path, name: str, url: str, doors: Sequence[str] = ("rustlog", "http"), **environment: str
    ) -> None:
        self.name = name
        self.journal = urlsplit(url).path.removeprefix("/")
        self.ports = {door: steady_udp_port() if door == FELIX else steady_port() for door in doors}
        listen = {door: f"127.0.0.1:{self.ports[door]}" if door in doors else "off" for door in BUILT}
        self._directory = directory / name
        self._arguments = (
            *(("--storage", url) if url else ()),
            *(part for door, place in listen.items() for part in ("--listen", f"{door}={place}")),
        )
        self._environment = {"PENSTOCK_TABLES__URL": str(directory / "tables"), **environment}
        self.lines: list[str] = []  # since the last start
        self.journey: list[str] = []  # every line since the first, with the time at which it came
        self._changed = threading.Condition()
        self._collecting: list[threading.Thread] = []
        self.broker: BrokerProcess | None = None

    def start(self) -> Broker:
        self.lines.clear()
        self.broker = BrokerProcess(self._directory, *self._arguments, **self._environment)
        for stream in (self.broker.process.stdout, self.broker.process.stderr):
            assert stream is not None
            self._collecting.append(threading.Thread(target=self._collect, args=(stream,), daemon=True))
            self._collecting[-1].start()
        return self

    @property
    def port(self) -> int:
        return self.ports["rustlog"]

    @property
    def runs(self) -> bool:
        return self.broker is not None

    @property
    def ended(self) -> bool:
        """By itself."""
        return self.broker is not None and self.broker.process.poll() is not None

    @property
    def owns(self) -> bool:
        return "is ready" in self._said

    @property
    def knows_its_place(self) -> bool:
        """Whether it owns the journal or follows it."""
        return self.owns or self._said.startswith("standby")

    @property
    def _said(self) -> str:
        """The last line about who owns the journal."""
        with self._changed:
            said = [line for line in self.lines if "is ready" in line or line.startswith(("standby", "stepping"))]
        return said[-1] if said and self.runs else ""

    def _collect(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self.lines.append(line)
                    self.journey.append(f"{datetime.now(UTC):%H:%M:%S.%f} {line}")
                    self._changed.notify_all()

    def says(self, text: str, seconds: float = 120) -> None:
        with self._changed:
            found = self._changed.wait_for(lambda: any(text in line for line in self.lines), seconds)
        assert found, f"no {text!r} in:\n{''.join(self.lines)}"

    def ready(self) -> Broker:
        self.says("is ready")
        return self

    def kill(self) -> None:
        if self.broker is not None:
            self.broker.process.kill()
            self.broker.process.wait()
            for each in self._collecting:  # its workers have the same streams, and end a little later
                each.join(60)
            self._collecting.clear()
            self.broker = None

    def signal(self, number: signal.Signals) -> None:
        assert self.broker is not None
        self.broker.signal(number)

    def values(self, topic: str = TOPIC) -> list[str]:
        with rustlog.Client("127.0.0.1", self.port) as client:
            found: list[str] = []
            while records := client.fetch(topic, 0, len(found), max_bytes=1 << 24).records:
                found += [record.payload.decode() for record in records]
            return found

    def write(self, *values: str) -> None:
        with rustlog.Client("127.0.0.1", self.port) as client:
            with suppress(rustlog.ClientError):  # it is there already
                client.create_topic(TOPIC, 1)
            for value in values:
                client.produce(TOPIC, 0, [value.encode()])


class Writer:
    """Writes to whichever broker takes it, without end, and remembers what was acknowledged and what is not known."""

    def __init__(self, *brokers: Broker, topic: str = TOPIC, timeout: float = 5, pause: float = 0) -> None:
        """`timeout`: in which a broker has to answer, before another is asked; `pause`: between two records."""
        self._topic = topic
        self._pause = pause
        self._timeout = timeout
        self._ports = [broker.port for broker in brokers]
        self.acknowledged: list[str] = []
        self.doubtful: set[str] = set()
        self.longest_gap = 0.0
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    def more(self, count: int, seconds: float = 120) -> None:
        """Wait until so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        give_up = time.monotonic() + seconds
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < give_up, f"{len(self.acknowledged)} of {wanted} were acknowledged"
            time.sleep(0.01)

    def _run(self) -> None:
        last = time.monotonic()
        numbers = itertools.count()
        for port in itertools.cycle(self._ports):
            if self._stop:
                return
            with (
                suppress(rustlog.RustLogError),
                rustlog.Client("127.0.0.1", port, timeout=self._timeout, retry=None) as client,
            ):
                with suppress(rustlog.ClientError):  # it is there already
                    client.create_topic(self._topic, 1)
                while not self._stop:
                    value = str(next(numbers))
                    try:
                        client.produce(self._topic, 0, [value.encode()])
                    except rustlog.OutcomeUnknown:
                        self.doubtful.add(value)
                        raise
                    now = time.monotonic()
                    self.longest_gap, last = max(self.longest_gap, now - last), now
                    self.acknowledged.append(value)
                    time.sleep(self._pause)
            time.sleep(0.02)

    def check(self, found: list[str]) -> None:
        """Everything acknowledged is there once and in order, and nothing that was refused."""
        known = [value for value in found if value not in self.doubtful]
        assert known == self.acknowledged
        assert len(set(found)) == len(found)
