"""RustLog's clients in a kill campaign: plain sockets with their own encoders of both dialects, independent of the
broker's code."""

from __future__ import annotations

import base64
import json
import random
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from tests.crash.payloads import id_of, payload_of
from tests.histories.history import History, Operation, Place

ERROR, CREATE_TOPIC, PRODUCE, COMMIT = 0xFE, 0x05, 0x01, 0x03
ALREADY_EXISTS = 11
NEW_TOPIC = "topic/new-"


class ServerError(Exception):
    """The broker answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">H", len(data)) + data


class Connection:
    """A blocking connection: frames out, frames in, both dialects."""

    def __init__(self, port: int, seconds: float = 120.0) -> None:
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


# -- clients under load


@dataclass(slots=True)
class Load:
    """The state that all clients of a campaign share."""

    history: History
    places: tuple[Place, ...]
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
                created = load.history.invoke(client, "put", key=f"{NEW_TOPIC}{number}", value="3")
                connection.create_topic(f"new-{number}", 3)
                load.history.acknowledge(created)
            time.sleep(0.002)


def read_back(connection: Connection, load: Load) -> None:
    """Everything that is there: records, bounds, topics, group offsets."""
    for place in load.places:
        note_contents(load.history, connection, place)
    topics = {f"topic/{name}": str(count) for name, count in connection.topics().items()}
    for created in load.history.of("put"):
        load.history.note("campaign", "get", key=created.key, found=topics.get(created.key))
    made = [name for name in topics if name.startswith(NEW_TOPIC)]
    load.history.note("campaign", "list", key=NEW_TOPIC, ids=made)
    for group, place in sorted({(commit.group, commit.place) for commit in load.history.of("commit")}):
        position = load.history.invoke("campaign", "position", place, group=group)
        reply = connection.json(type="OffsetFetch", group=group, topic=place.topic, partition=place.partition)
        load.history.acknowledge(position, offset=reply["offset"])


def note_contents(history: History, connection: Connection, place: Place) -> None:
    """All of a partition."""
    contents = history.invoke("campaign", "contents", place, door="rustlog")
    contents.offset, contents.end = connection.bounds(*place)
    found = list(connection.fetch_all(*place))
    contents.offsets = tuple(offset for offset, _ in found)
    history.acknowledge(contents, ids=[id_of(payload) for _, payload in found])
