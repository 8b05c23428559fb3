"""A real broker, killed again and again while clients publish to queues and take from them.

Clients are plain sockets with their own encoder of BlipMQ, independent of the broker's code. There are consumers that
acknowledge at once, late, sometimes and never, some that poll and one that is pushed to. In the end every queue is
run dry, everything is read back, and `queue_history.check_queues` compares.
"""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from tests.crash.history import Operation, Outcome, Place, Violation
from tests.crash.killer import Broker, id_of, payload_of
from tests.crash.queue_history import Letter, QueueContents, QueueHistory, Stored, check_queues

from penstock.broker.broker import Broker as Core
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.queues.queue import QueuePolicy
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.settings import BrokerSettings
from penstock.log.committer import InlineCommitter
from penstock.log.engine import partition_id
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles

HELLO, AUTH, PUBLISH, SUBSCRIBE, ACK, NACK, PING, PONG, POLL, DELIVER = range(1, 11)
POLL_IDS = 1 << 40  # correlation ids of POLLs: no delivery tag is as large
TOPIC = "jobs"
PLACE = Place(TOPIC, 0)
ATTEMPTS = 3
MODES = ("eager", "late", "some", "never", "pushed")

Frame = tuple[int, int, bytes]


class QueueBroker(Broker):
    """With the door that this module needs."""

    def launch(self) -> subprocess.Popen[bytes]:
        shut, wide = "--listen=blipmq=off", "--listen=blipmq=127.0.0.1:0"
        self._command = [wide if part == shut else part for part in self._command]
        return super().launch()

    @property
    def port(self) -> int:
        return self.ports["blipmq"]


def frame(kind: int, correlation: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBQ", 9 + len(payload), kind, correlation) + payload


def publish(correlation: int, value: bytes) -> bytes:
    return frame(PUBLISH, correlation, struct.pack(">BH", 1, len(TOPIC)) + TOPIC.encode() + value)


def message_of(received: Frame) -> tuple[int, str] | None:
    """(tag, id) of a delivery of either version."""
    kind, correlation, payload = received
    if kind not in (PUBLISH, DELIVER):
        return None
    at = 1 if kind == PUBLISH else 9
    (length,) = struct.unpack_from(">H", payload, at)
    assert payload[0] == 1 and payload[at + 2 : at + 2 + length] == TOPIC.encode(), payload[:40]
    return correlation, id_of(payload[at + 2 + length :])


class Connection:
    """A blocking connection that has shaken hands."""

    def __init__(self, port: int, version: int = 1) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
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
    history: QueueHistory
    subscriptions: dict[str, int] = field(default_factory=dict)  # by mode
    problems: list[str] = field(default_factory=list)
    serial: dict[str, int] = field(default_factory=dict)


def produce(load: Load, port: int, client: str, seed: int) -> None:
    """Publish in bursts, each known to be stored by a PONG, until the connection breaks."""
    rng = random.Random(seed)
    with Connection(port) as connection:
        while True:
            burst: dict[int, Operation] = {}
            frames = []
            for _ in range(rng.choice((1, 3, 10))):
                number = load.serial[client] = load.serial.get(client, 0) + 1
                burst[number] = load.history.invoke(client, "publish", PLACE, (f"{client}:{number}",))
                frames.append(publish(number, payload_of(f"{client}:{number}", rng.choice((20, 200)))))
            connection.send(*frames, frame(PING, 1))
            for kind, correlation, payload in connection.until_pong():
                assert kind == NACK, kind
                load.history.reject(burst.pop(correlation), payload[4:].decode())
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
        """How many messages came."""
        history, subscription = self.load.history, self.subscription
        for when, tag, message in list(self.late):
            if when <= time.monotonic():
                self.late.remove((when, tag, message))
                self._acknowledge(tag, message)
        sent, self.acks = self.acks, {}
        payload = struct.pack(">Q", subscription)
        count = 0 if self.mode == "pushed" else polls or self.rng.choice((1, 4, 16))
        asked = 0.0 if self.mode == "pushed" else time.time()  # nobody asks for what is pushed: not known
        self.connection.send(
            *(frame(ACK, tag, payload) for tag in sent),
            *(frame(POLL, POLL_IDS + n, payload) for n in range(count)),
            frame(PING, 1),
        )
        came = 0
        for received in self.connection.until_pong():
            if (delivery := message_of(received)) is not None:
                came += 1
                history.deliver(self.mode, PLACE, subscription, *delivery, asked)
                self._decide(*delivery)
            else:
                assert received[0] == NACK and received[1] < POLL_IDS, received
                history.reject(sent.pop(received[1]), received[2][4:].decode())
        for operation in sent.values():
            history.acknowledge(operation)
        return came

    def _acknowledge(self, tag: int, message: str) -> None:
        if tag not in self.acks:
            ack = self.load.history.invoke(
                self.mode, "ack", PLACE, (message,), offset=tag, group=str(self.subscription)
            )
            self.acks[tag] = ack

    def _decide(self, tag: int, message: str) -> None:
        if self.mode in ("eager", "pushed") or (self.mode == "some" and self.rng.random() < 0.5):
            self._acknowledge(tag, message)
        elif self.mode == "late":
            self.late.append((time.monotonic() + self.rng.uniform(0, 0.15), tag, message))


def connected(load: Load, port: int, mode: str, seed: int) -> Consumer:
    connection = Connection(port, 2 if mode == "pushed" else 1)
    return Consumer(load, connection, mode, random.Random(seed))


def consume(load: Load, port: int, client: str, seed: int) -> None:
    consumer = connected(load, port, client, seed)
    with consumer.connection:
        consumer.attach()
        while True:
            if not consumer.step():
                time.sleep(0.003)


@dataclass(slots=True)
class Campaign:
    directory: str
    cycles: int
    seed: int = 0
    durability: str = "synced"
    modes: Sequence[str] = MODES
    producers: int = 3
    load_seconds: float = 0.4  # at most, in each cycle
    ttl: float = 0.0  # s; 0 for none
    backoff: float = 0.05  # s
    quiet_seconds: float = 0.0  # before the end, in which messages may expire


@dataclass(slots=True)
class Outcomes:
    history: QueueHistory
    contents: QueueContents
    violations: list[Violation]
    kills: int

    def count(self, kind: str, outcome: Outcome | None = None) -> int:
        return sum(outcome in (None, operation.outcome) for operation in self.history.of(kind))


def run(campaign: Campaign, progress: Callable[[str], None] = lambda _: None) -> Outcomes:
    """Kill the broker `cycles` times, run all queues dry, read everything back and check it."""
    rng = random.Random(campaign.seed)
    load = Load(QueueHistory())
    settings = {
        "PENSTOCK_LOG__FILE_BYTES": "262144",
        "PENSTOCK_LOG__SNAPSHOT_BYTES": "65536",
        "PENSTOCK_QUEUES__CAPACITY": "0",
        "PENSTOCK_QUEUES__TTL_SECONDS": str(campaign.ttl),
        "PENSTOCK_QUEUES__ATTEMPTS": str(ATTEMPTS),
        "PENSTOCK_QUEUES__BACKOFF_SECONDS": str(campaign.backoff),
    }
    with QueueBroker(campaign.directory, campaign.durability, settings=settings) as broker:
        broker.start()
        with Connection(broker.port) as connection:
            for mode in campaign.modes:
                connection.send(frame(SUBSCRIBE, 3, struct.pack(">H", len(TOPIC)) + TOPIC.encode() + b"\x01"))
                kind, _, payload = connection.receive()
                assert kind == ACK, payload
                load.subscriptions[mode] = int.from_bytes(payload, "big")
        broker.kill()
        for cycle in range(campaign.cycles):
            _cycle(campaign, broker, load, rng)
            if load.problems:
                raise AssertionError(f"cycle {cycle}: {load.problems[:3]}\n{broker.errors()}")
            if cycle % 20 == 19:
                progress(f"{cycle + 1} kills, {sum(load.serial.values())} messages sent")
        broker.start()
        time.sleep(campaign.quiet_seconds)
        _run_dry(campaign, load, broker.port)
        if (code := broker.stop()) != 0:
            raise AssertionError(f"the broker ended with {code}\n{broker.errors()}")
    contents = read_back(campaign, load)
    return Outcomes(load.history, contents, check_queues(load.history, contents), campaign.cycles)


def _cycle(campaign: Campaign, broker: Broker, load: Load, rng: random.Random) -> None:
    broker.start()
    jobs = [(produce, f"producer-{n}") for n in range(campaign.producers)]
    jobs += [(consume, mode) for mode in campaign.modes]
    threads = [
        threading.Thread(target=_work, args=(job, load, broker.port, name, rng.getrandbits(32)), name=name)
        for job, name in jobs
    ]
    for thread in threads:
        thread.start()
    time.sleep(rng.uniform(0.02, campaign.load_seconds))
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


def _run_dry(campaign: Campaign, load: Load, port: int) -> None:
    """Take until nothing has come for longer than the longest backoff, and what is given up has been."""
    patience = campaign.backoff * 2 ** (ATTEMPTS - 1) + 1.5
    consumers = [connected(load, port, mode, 1) for mode in campaign.modes]
    for consumer in consumers:
        consumer.attach()
    last = time.monotonic()
    while time.monotonic() - last < patience:
        for consumer in consumers:
            if consumer.step(256) or consumer.late or consumer.acks:
                last = time.monotonic()
        time.sleep(0.01)
    for consumer in consumers:
        consumer.connection.close()


def read_back(campaign: Campaign, load: Load) -> QueueContents:
    """From the log itself, because no protocol tells the headers of dead letters yet. The broker is not running."""
    files = OsFiles(f"{campaign.directory}/data")
    engine = FileEngine(files, LogSettings(), committer=InlineCommitter(), clock=lambda: time.time_ns() // 1000)
    core = Core(engine, BrokerSettings(queues=QueuePolicy(capacity=0)))
    try:
        messages = [Stored(id_of(value), offset, at / 1e6) for offset, at, value, _ in _records(core, TOPIC)]
        letters = []
        for _, _, value, told in _records(core, f"{TOPIC}.dlq"):
            numbers = [int(told[f"dead-letter-{name}"]) for name in ("queue", "offset", "attempts")]
            letters.append(Letter(id_of(value), *numbers))
        left = {}
        for subscription in load.subscriptions.values():
            queue, _ = core.queues.find(ANONYMOUS, subscription)
            end = engine.bounds(partition_id(queue.topic, 0)).high_watermark
            left[subscription] = queue.in_flight + end - queue.cursors[0]
    finally:
        core.close()
    subscriptions = list(load.subscriptions.values())
    ttl = campaign.ttl or float("inf")
    return QueueContents(PLACE, messages, letters, subscriptions, ATTEMPTS, ttl, left)


def _records(core: Core, topic: str) -> list[tuple[int, int, bytes, dict[str, bytes]]]:
    """(offset, timestamp, value, headers) of everything in a topic, which may not exist."""
    names = [one.name for one in core.topics.list(ANONYMOUS, DEFAULT_SCOPE)]
    found: list[tuple[int, int, bytes, dict[str, bytes]]] = []
    while topic in names:
        parts = core.fetch.plan(ANONYMOUS, DEFAULT_SCOPE, topic, 0, len(found), 1 << 20, 1 << 20).run()
        if not parts:
            break
        for part in parts:
            headers = map(dict, part.headers())
            offsets = range(part.base_offset, part.end_offset)
            found += zip(offsets, part.timestamps(), part.values(), headers, strict=True)
    return found
