"""BlipMQ's clients in a kill campaign: plain sockets with their own encoder, independent of the broker's code. There
are consumers that acknowledge at once, late, sometimes and never, some that poll and one that is pushed to."""

from __future__ import annotations

import random
import socket
import struct
import time
from dataclasses import dataclass, field
from types import TracebackType

from tests.crash.payloads import id_of, payload_of
from tests.histories.history import History, Operation, Place, microseconds

HELLO, AUTH, PUBLISH, SUBSCRIBE, ACK, NACK, PING, PONG, POLL, DELIVER = range(1, 11)
UNKNOWN = "outcome unknown"  # in a NACK's text
POLL_IDS = 1 << 40  # correlation ids of POLLs: no delivery tag is as large
TOPIC = "jobs"
PLACE = Place(TOPIC, 0)
ATTEMPTS = 3
MODES = ("eager", "late", "some", "never", "pushed")

Frame = tuple[int, int, bytes]


def frame(kind: int, correlation: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBQ", 9 + len(payload), kind, correlation) + payload


def publish(correlation: int, topic: str, value: bytes) -> bytes:
    return frame(PUBLISH, correlation, struct.pack(">BH", 1, len(topic)) + topic.encode() + value)


def message_of(received: Frame, topic: str) -> tuple[int, str] | None:
    """(tag, id) of a delivery of either version."""
    kind, correlation, payload = received
    if kind not in (PUBLISH, DELIVER):
        return None
    at = 1 if kind == PUBLISH else 9
    (length,) = struct.unpack_from(">H", payload, at)
    assert payload[0] == 1 and payload[at + 2 : at + 2 + length] == topic.encode(), payload[:40]
    return correlation, id_of(payload[at + 2 + length :])


class Connection:
    """A blocking connection that has shaken hands."""

    def __init__(self, port: int, version: int = 1) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        try:
            self.send(frame(HELLO, 1, struct.pack(">H", version)), frame(AUTH, 2, b"\x00\x03key"))
            for correlation in (1, 2):
                assert self.receive() == (ACK, correlation, bytes(8))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, *frames: bytes) -> None:
        self._socket.sendall(b"".join(frames))

    def receive(self) -> Frame:
        while len(self._buffer) < 4 or len(self._buffer) < 4 + int.from_bytes(self._buffer[:4], "big"):
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._buffer += data
        end = 4 + int.from_bytes(self._buffer[:4], "big")
        whole, self._buffer = self._buffer[:end], self._buffer[end:]
        return whole[4], int.from_bytes(whole[5:13], "big"), whole[13:]

    def until_pong(self) -> list[Frame]:
        received = []
        while (one := self.receive())[0] != PONG:
            received.append(one)
        return received


@dataclass(slots=True)
class Load:
    history: History
    place: Place = PLACE
    subscriptions: dict[str, int] = field(default_factory=dict)  # by mode
    serial: dict[str, int] = field(default_factory=dict)


def refused(history: History, operation: Operation, nack: bytes) -> None:
    """Note what a NACK promises: that nothing was stored, unless it says that this is unknown."""
    text = nack[4:].decode()
    if UNKNOWN in text:
        operation.error = text
    else:
        history.reject(operation, text)


def produce(load: Load, port: int, client: str, seed: int) -> None:
    """Publish in bursts, each known to be stored by a PONG, until the connection breaks."""
    rng = random.Random(seed)
    with Connection(port) as connection:
        while True:
            burst: dict[int, Operation] = {}
            frames = []
            for _ in range(rng.choice((1, 3, 10))):
                number = load.serial[client] = load.serial.get(client, 0) + 1
                burst[number] = load.history.invoke(
                    client, "append", load.place, (f"{client}:{number}",), door="blipmq"
                )
                value = payload_of(f"{client}:{number}", rng.choice((20, 200)))
                frames.append(publish(number, load.place.topic, value))
            connection.send(*frames, frame(PING, 1))
            for kind, correlation, payload in connection.until_pong():
                assert kind == NACK, kind
                refused(load.history, burst.pop(correlation), payload)
            for operation in burst.values():
                load.history.acknowledge(operation)
            time.sleep(rng.uniform(0, 0.02))


@dataclass(slots=True)
class Consumer:
    """Takes from one subscription on one connection. `step` is one round trip."""

    load: Load
    connection: Connection
    mode: str
    rng: random.Random
    acks: dict[int, Operation] = field(default_factory=dict)  # to be sent with the next round, by tag
    late: list[tuple[float, int, str]] = field(default_factory=list)  # to be acknowledged when it is time

    @property
    def subscription(self) -> int:
        return self.load.subscriptions[self.mode]

    def attach(self) -> None:
        if self.mode == "pushed":
            self.connection.send(frame(POLL, POLL_IDS, struct.pack(">Q", self.subscription)))

    def step(self, polls: int | None = None) -> int:
        """The number of messages received."""
        history, subscription = self.load.history, self.subscription
        for when, tag, message in list(self.late):
            if when <= time.monotonic():
                self.late.remove((when, tag, message))
                self._acknowledge(tag, message)
        sent, self.acks = self.acks, {}
        payload = struct.pack(">Q", subscription)
        count = 0 if self.mode == "pushed" else polls or self.rng.choice((1, 4, 16))
        asked = 0 if self.mode == "pushed" else microseconds()  # nobody asks for what is pushed: not known
        self.connection.send(
            *(frame(ACK, tag, payload) for tag in sent),
            *(frame(POLL, POLL_IDS + n, payload) for n in range(count)),
            frame(PING, 1),
        )
        came = 0
        for received in self.connection.until_pong():
            if (delivery := message_of(received, self.load.place.topic)) is not None:
                came += 1
                tag, message = delivery
                queue = str(subscription)  # which began before the first message: tags are offsets, from 1 on
                deliver = history.note(self.mode, "deliver", self.load.place, (message,), group=queue)
                deliver.offset, deliver.stamp, deliver.door = tag - 1, asked, "blipmq"
                self._decide(*delivery)
            else:
                assert received[0] == NACK and received[1] < POLL_IDS, received
                refused(history, sent.pop(received[1]), received[2])
        for operation in sent.values():
            history.acknowledge(operation)
        return came

    def _acknowledge(self, tag: int, message: str) -> None:
        if tag not in self.acks:
            ack = self.load.history.invoke(self.mode, "ack", self.load.place, (message,), group=str(self.subscription))
            self.acks[tag] = ack

    def _decide(self, tag: int, message: str) -> None:
        if self.mode in ("eager", "pushed") or (self.mode == "some" and self.rng.random() < 0.5):
            self._acknowledge(tag, message)
        elif self.mode == "late":
            self.late.append((time.monotonic() + self.rng.uniform(0, 0.15), tag, message))


def connected(load: Load, port: int, mode: str, seed: int) -> Consumer:
    connection = Connection(port, 2 if mode == "pushed" else 1)
    return Consumer(load, connection, mode, random.Random(seed))


def subscribe(connection: Connection, topic: str = TOPIC) -> int:
    connection.send(frame(SUBSCRIBE, 3, struct.pack(">H", len(topic)) + topic.encode() + b"\x01"))
    kind, _, payload = connection.receive()
    assert kind == ACK, payload
    return int.from_bytes(payload, "big")


def consume(load: Load, port: int, client: str, seed: int) -> None:
    consumer = connected(load, port, client, seed)
    with consumer.connection:
        consumer.attach()
        while True:
            if not consumer.step():
                time.sleep(0.003)
