"""A real broker, killed again and again under load, and the history of what its clients were told.

Clients are plain sockets with their own encoders of RustLog's two dialects, independent of the broker's code. Each
cycle starts the broker, puts load on it from several connections, and ends it with SIGKILL at a random moment. In
the end everything is read back, and `history.check` compares.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from zlib import crc32

from tests.crash.history import LOG_RULES, Contents, History, Operation, Outcome, Place, Violation, check

DOORS_OFF = tuple(f"--listen={name}=off" for name in ("blipmq", "flymq", "kimberlite", "felix", "flight"))
ERROR, CREATE_TOPIC, PRODUCE, COMMIT = 0xFE, 0x05, 0x01, 0x03
ALREADY_EXISTS = 11


class ServerError(Exception):
    """The broker answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Broker:
    """`penstock serve` as a child process. `prefix` goes before the command: strace, for instance."""

    def __init__(
        self,
        directory: str,
        durability: str = "synced",
        *,
        prefix: Sequence[str] = (),
        settings: dict[str, str] | None = None,
        http: bool = False,
    ) -> None:
        self._directory = directory
        self._command = [
            *prefix, sys.executable, "-m", "penstock.cli.main", "serve",
            f"--data-dir={directory}/data", f"--durability={durability}", "--listen=rustlog=127.0.0.1:0",
            f"--listen=http={'127.0.0.1:0' if http else 'off'}", *DOORS_OFF,
        ]  # fmt: skip
        # Tables, unless a test is about them, would only make each of many starts longer.
        own = {"PYTHONUNBUFFERED": "1", "PENSTOCK_TABLES__ENABLED": "false", "PENSTOCK_SQL__START": "statement"}
        self._environment = {**os.environ, **own, **(settings or {})}
        self.process: subprocess.Popen[bytes] | None = None
        self.ports: dict[str, int] = {}
        self._pid = 0  # of the broker itself, which `prefix` may have started

    @property
    def port(self) -> int:
        return self.ports["rustlog"]

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process and do not wait for it."""
        self._pid = 0
        with open(f"{self._directory}/broker.log", "a") as errors:
            self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=errors, env=self._environment)
        return self.process

    def start(self, seconds: float = 60.0) -> None:
        """Start, and return when the doors are open."""
        process = self.launch()
        assert process.stdout is not None
        seen = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            end = time.monotonic() + seconds
            while selector.select(max(0.0, end - time.monotonic())):
                more = os.read(process.stdout.fileno(), 4096)
                seen += more
                if b"is ready" in seen:
                    found = re.findall(r"^\s+(\w+)\s+[\d.]+:(\d+)\s*$", seen.decode(), re.MULTILINE)
                    self.ports = {name: int(port) for name, port in found}
                    if ready := re.search(r"Process (\d+) is ready", seen.decode()):
                        self._pid = int(ready[1])
                    return
                if not more:
                    break
        self.kill()
        raise AssertionError(f"the broker did not start: {seen.decode()}\n{self.errors()}")

    def errors(self) -> str:
        with open(f"{self._directory}/broker.log") as log:
            return log.read()[-4000:]

    def _end(self, number: signal.Signals, seconds: float) -> int:
        process = self.process
        assert process is not None
        os.kill(self._pid or process.pid, number)
        code = process.wait(seconds)
        if process.stdout is not None:
            process.stdout.close()
        self.process = None
        return code

    def kill(self) -> None:
        self._end(signal.SIGKILL, 30)

    def stop(self) -> int:
        return self._end(signal.SIGTERM, 30)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process is not None:
            self.kill()


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">H", len(data)) + data


class Connection:
    """A blocking connection: frames out, frames in, both dialects."""

    def __init__(self, port: int, seconds: float = 30.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def send(self, frames: Sequence[bytes]) -> None:
        self._socket.sendall(b"".join(struct.pack(">I", len(frame)) + frame for frame in frames))

    def receive(self) -> bytes:
        while True:
            if len(self._buffer) >= 4:
                end = 4 + int.from_bytes(self._buffer[:4], "big")
                if len(self._buffer) >= end:
                    frame = bytes(self._buffer[4:end])
                    del self._buffer[:end]
                    return frame
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._buffer += data

    def binary(self, frame: bytes) -> bytes:
        self.send([frame])
        return binary_reply(self.receive())

    def json(self, **request: Any) -> dict[str, Any]:
        self.send([json.dumps(request).encode()])
        return json_reply(self.receive())

    def create_topic(self, topic: str, partitions: int) -> None:
        self.binary(bytes([CREATE_TOPIC]) + _text(topic) + struct.pack(">I", partitions))

    def produce(self, topic: str, partition: int, payloads: Sequence[bytes]) -> int:
        return int.from_bytes(self.binary(binary_produce(topic, partition, payloads))[:8], "big")

    def fetch(self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, bytes]]:
        reply = self.json(
            type="Fetch", group_id="reader", topic=topic, partition=partition, offset=offset, max_bytes=max_bytes
        )
        return [(record["offset"], base64.b64decode(record["payload"])) for record in reply["records"]]

    def fetch_all(self, topic: str, partition: int) -> Iterator[tuple[int, bytes]]:
        offset, end = self.bounds(topic, partition)
        while offset < end:
            records = self.fetch(topic, partition, offset)
            if not records:
                return
            yield from records
            offset = records[-1][0] + 1

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        described = self.json(type="DescribeTopic", topic=topic)["partitions"][partition]
        return described["log_start_offset"], described["high_watermark"]

    def topics(self) -> dict[str, int]:
        return {topic["name"]: topic["partition_count"] for topic in self.json(type="ListTopics")["topics"]}


def binary_produce(topic: str, partition: int, payloads: Sequence[bytes]) -> bytes:
    parts = [bytes([PRODUCE]), _text(topic), struct.pack(">II", partition, len(payloads))]
    for payload in payloads:
        parts += [struct.pack(">I", len(payload)), payload]
    return b"".join(parts)


def json_produce(topic: str, partition: int, payloads: Sequence[bytes]) -> bytes:
    records = [base64.b64encode(payload).decode() for payload in payloads]
    return json.dumps({"type": "Produce", "topic": topic, "partition": partition, "records": records}).encode()


def binary_reply(frame: bytes) -> bytes:
    if frame[0] == ERROR:
        code, length = struct.unpack_from(">HH", frame, 1)
        raise ServerError(code, frame[5 : 5 + length].decode())
    return frame[1:]


def json_reply(frame: bytes) -> dict[str, Any]:
    reply: dict[str, Any] = json.loads(frame)
    if reply["type"] == "Error":
        raise ServerError(reply["code"], reply["message"])
    return reply


# -- payloads that show whose they are, and that they are whole


def payload_of(record: str, size: int) -> bytes:
    body = f"{record}|".encode().ljust(size, b".")
    return body + b"%08x" % crc32(body)


def id_of(payload: bytes) -> str:
    body, checksum = payload[:-8], payload[-8:]
    if checksum != b"%08x" % crc32(body):
        return f"damaged {payload[:40]!r}"
    return body.partition(b"|")[0].decode()


# -- clients under load


@dataclass(slots=True)
class Load:
    """What all clients of a campaign share."""

    history: History
    places: tuple[Place, ...]
    problems: list[str] = field(default_factory=list)
    serial: dict[str, int] = field(default_factory=dict)  # records sent so far, by client

    def ids(self, client: str, count: int) -> list[str]:
        first = self.serial.get(client, 0)
        self.serial[client] = first + count
        return [f"{client}:{number}" for number in range(first, first + count)]


def write(load: Load, port: int, client: str, seed: int) -> None:
    """Produce in bursts, every burst pipelined, until the connection breaks. Odd clients speak JSON."""
    rng = random.Random(seed)
    speaks_json = client[-1] in "13579"
    encode = json_produce if speaks_json else binary_produce
    with Connection(port) as connection:
        while True:
            burst: list[Operation] = []
            frames = []
            for _ in range(rng.choice((1, 1, 4, 16))):
                place = rng.choice(load.places)
                ids = load.ids(client, rng.choice((1, 1, 3, 20)))
                size = rng.choice((20, 100, 1000))
                frames.append(encode(place.topic, place.partition, [payload_of(record, size) for record in ids]))
                burst.append(load.history.invoke(client, "append", place, ids))
            connection.send(frames)
            for operation in burst:
                frame = connection.receive()
                if speaks_json:
                    base = json_reply(frame)["base_offset"]
                else:
                    base = int.from_bytes(binary_reply(frame)[:8], "big")
                load.history.acknowledge(operation, offset=base)


def read_along(load: Load, port: int, client: str, seed: int) -> None:
    """Read from anywhere, and now and then commit a group's offset or create a topic."""
    rng = random.Random(seed)
    with Connection(port) as connection:
        while True:
            place = rng.choice(load.places)
            start, end = connection.bounds(*place)
            operation = load.history.invoke(client, "read", place)
            records = connection.fetch(*place, offset=rng.randint(start, end), max_bytes=20_000)
            if records:
                load.history.acknowledge(operation, offset=records[0][0], ids=[id_of(data) for _, data in records])
            commit = load.history.invoke(client, "commit", place, offset=rng.randint(0, end), group=f"group-{client}")
            connection.json(
                type="OffsetCommit",
                group=commit.group,
                topic=place.topic,
                partition=place.partition,
                offset=commit.offset,
            )
            load.history.acknowledge(commit)
            if rng.random() < 0.1:
                number = load.serial["topics"] = load.serial.get("topics", 0) + 1
                created = load.history.invoke(client, "create", Place(f"new-{number}", 3))
                connection.create_topic(*created.place)
                load.history.acknowledge(created)
            time.sleep(0.002)


def topics_kept(history: History, contents: Contents) -> Iterator[str]:
    """Every topic whose creation was acknowledged exists."""
    there = {(place.topic, place.partition) for place in contents.starts}
    for operation in history.of("create"):
        if operation.outcome is Outcome.ACKNOWLEDGED and operation.place not in there:
            yield f"topic {operation.place.topic} was created, and is gone"


RULES = (*LOG_RULES, topics_kept)


# -- a campaign


@dataclass(slots=True)
class Campaign:
    directory: str
    cycles: int
    seed: int = 0
    durability: str = "synced"
    writers: int = 4
    load_seconds: float = 0.3  # at most, in each cycle
    settings: dict[str, str] = field(
        default_factory=lambda: {"PENSTOCK_LOG__FILE_BYTES": "262144", "PENSTOCK_LOG__SNAPSHOT_BYTES": "131072"}
    )


@dataclass(slots=True)
class Outcomes:
    history: History
    contents: Contents
    violations: list[Violation]
    kills: int
    acknowledged: int  # records


def run(campaign: Campaign, progress: Callable[[str], None] = lambda _: None) -> Outcomes:
    """Kill the broker `cycles` times, then read everything back and check it."""
    rng = random.Random(campaign.seed)
    load = Load(History(), tuple(Place(topic, number) for topic in ("first", "second") for number in range(2)))
    with Broker(campaign.directory, campaign.durability, settings=campaign.settings) as broker:
        broker.start()
        with Connection(broker.port) as connection:
            for topic in {place.topic for place in load.places}:
                connection.create_topic(topic, 2)
        broker.kill()
        for cycle in range(campaign.cycles):
            _cycle(campaign, broker, load, rng, cycle)
            if load.problems:
                raise AssertionError(f"cycle {cycle}: {load.problems[:3]}\n{broker.errors()}")
            if cycle % 20 == 19:
                progress(f"{cycle + 1} kills, {sum(load.serial.values())} records sent")
        broker.start()
        with Connection(broker.port) as connection:
            contents = read_back(connection, load)
        code = broker.stop()
        if code != 0:
            raise AssertionError(f"the broker ended with {code}\n{broker.errors()}")
    acknowledged = sum(len(o.ids) for o in load.history.of("append") if o.outcome is Outcome.ACKNOWLEDGED)
    return Outcomes(load.history, contents, check(load.history, contents, RULES), campaign.cycles, acknowledged)


def _cycle(campaign: Campaign, broker: Broker, load: Load, rng: random.Random, cycle: int) -> None:
    if rng.random() < 0.15:  # killed while it starts
        broker.launch()
        time.sleep(rng.uniform(0.0, 0.8))
        broker.kill()
        return
    broker.start()
    jobs = [(write, f"writer-{n}") for n in range(campaign.writers)] + [(read_along, "reader")]
    threads = [
        threading.Thread(target=_work, args=(job, load, broker.port, name, rng.getrandbits(32)), name=f"{name}/{cycle}")
        for job, name in jobs
    ]
    for thread in threads:
        thread.start()
    time.sleep(rng.uniform(0.01, campaign.load_seconds))
    broker.kill()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), f"{thread.name} hangs"


def _work(job: Callable[[Load, int, str, int], None], load: Load, port: int, client: str, seed: int) -> None:
    """Run a client until the broker is gone. Anything but a broken connection is a problem."""
    try:
        job(load, port, client, seed)
    except ConnectionError:
        pass
    except Exception as error:  # noqa: BLE001 - it must not get lost in a thread
        load.problems.append(f"{client}: {error!r}")


def read_back(connection: Connection, load: Load) -> Contents:
    """Everything that is there: records, bounds, topics, group offsets."""
    records, starts, ends, committed = {}, {}, {}, {}
    for place in load.places:
        starts[place], ends[place] = connection.bounds(*place)
        records[place] = [(offset, id_of(payload)) for offset, payload in connection.fetch_all(*place)]
    for name, count in connection.topics().items():
        starts.setdefault(Place(name, count), 0)
    for operation in load.history.of("commit"):
        group, place = operation.group, operation.place
        if (group, place) not in committed:
            reply = connection.json(type="OffsetFetch", group=group, topic=place.topic, partition=place.partition)
            committed[group, place] = reply["offset"]
    return Contents(records, starts, ends, committed)
