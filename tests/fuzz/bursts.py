"""Bursts that cost a broker much and their sender little, and how long they make another client wait.

Each burst is sent at once by somebody who has not logged in, or whose key allows next to nothing; a flood is many of
them, by everybody, for some seconds. Everybody else is a client that pings without a pause. How long a ping waits is
told in processor time of the broker, so that it does not depend on who else uses the machine.
`python -m tests.fuzz.bursts` prints the table of `docs/security.md`; `BURST_BYTES` is the size of most bursts.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import selectors
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.fuzz import kimberlite_wire as kimberlite
from tests.fuzz.felix_peers import NAMES, Peer, batch, joined
from tests.fuzz.wire import BINARY_PING, JSON_PING, Wire, binary_create, binary_produce, frame, json_request, string
from tests.launcher import BrokerProcess, penstock

from penstock.transport.quic.errors import ConnectFailed
from penstock.wire.blipmq import codec as blipmq
from penstock.wire.felix import messages as felix
from penstock.wire.felix.frames import KNOWN
from penstock.wire.flymq.frames import frame as flymq
from penstock.wire.flymq.opcodes import COMPRESSION_GZIP, FLAG_BINARY, MAX_PAYLOAD, Op
from penstock.wire.kimberlite import messages as k

LIMIT: Final = 0.050  # s of processor time that a thread of the broker may have while a ping waits
SIZE: Final = int(os.environ.get("BURST_BYTES", "300000"))  # of most bursts
DEADLINE: Final = 300.0  # s; only to turn a hang into a failure
KEY: Final = "low-key-of-the-bursts-0123456789"
PASSWORD: Final = "low"
TOPIC: Final = "low"
NOBODY, LOW, ANYBODY = "nobody", "a low key", "anybody, security off"

Attack = Callable[[BrokerProcess], None]


class Burst(NamedTuple):
    name: str
    door: str
    who: str
    attack: Attack

    @property
    def secured(self) -> bool:
        """The broker's security."""
        return self.who != ANYBODY


def processor_seconds(process: int) -> dict[str, float]:
    """Processor time of each thread of a process, to the ns."""
    spent = {}
    for task in os.scandir(f"/proc/{process}/task"):
        with suppress(OSError), open(f"{task.path}/schedstat", encoding="ascii") as file:  # it may just have ended
            spent[task.name] = int(file.read().split()[0]) / 1e9
    return spent


# -- attackers by TCP


def stream(door: str, *pieces: bytes, connections: int = 1) -> Attack:
    """Send all of it at once, read whatever comes, until the broker closes."""
    data = b"".join(pieces)

    def attack(broker: BrokerProcess) -> None:
        threads = [threading.Thread(target=_send, args=(broker.endpoint(door), data)) for _ in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return attack


def tcp(door: str, who: str, name: str, *pieces: bytes, connections: int = 1) -> Burst:
    return Burst(name, door, who, stream(door, *pieces, connections=connections))


def _send(address: tuple[str, int], data: bytes) -> None:
    end = time.monotonic() + DEADLINE
    with socket.create_connection(address) as peer, selectors.DefaultSelector() as selector, suppress(ConnectionError):
        peer.setblocking(False)
        selector.register(peer, selectors.EVENT_READ | selectors.EVENT_WRITE)
        rest = memoryview(data)
        while time.monotonic() < end:
            for _, events in selector.select(1.0):
                if events & selectors.EVENT_READ and not peer.recv(1 << 20):
                    return
                if events & selectors.EVENT_WRITE and rest:
                    rest = rest[peer.send(rest) :]
                    if not rest:
                        peer.shutdown(socket.SHUT_WR)
                        selector.modify(peer, selectors.EVENT_READ)
        raise AssertionError("the broker neither answers nor closes")


def many(data: bytes, size: int = SIZE) -> bytes:
    return data * max(1, size // len(data))


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def packed(opcode: int, payload: bytes) -> bytes:
    return flymq(opcode, gzip.compress(payload, 9), FLAG_BINARY | COMPRESSION_GZIP)


def _flymq_batch(count: int) -> bytes:
    return struct.pack(">H", len(TOPIC)) + TOPIC.encode() + struct.pack(">I", count) + bytes(12 * count)


BOMB: Final = packed(Op.PRODUCE, bytes(MAX_PAYLOAD))
FLYMQ_LOGIN: Final = flymq(Op.AUTH, string(b"low") + string(PASSWORD.encode()))
BLIPMQ_LOGIN: Final = {v: blipmq.encode_hello(1, v) + blipmq.encode_auth(2, KEY) for v in (1, 2)}
CHUNKS: Final = b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 60_000
JSON_PRODUCE: Final = json_request("Produce", topic=TOPIC, partition=0, records=[""] * 1000)
JSON_MANY: Final = json_request("Produce", topic=TOPIC, partition=0, records=[""] * 2_000_000)
JSON_ESCAPES: Final = b'{"type":"DescribeTopic","topic":"' + b"\\u0041" * 1_600_000 + b'"}'
JSON_NUMBERS: Final = b'{"type":"Ping","x":[' + b"1," * 5_000_000 + b"1]}"
EMPTY_RECORDS: Final = b"\x01" + string(TOPIC.encode()) + struct.pack(">II", 0, 2_600_000) + bytes(4 * 2_600_000)
MIXED_RECORDS: Final = (
    b"\x01" + string(TOPIC.encode()) + struct.pack(">II", 0, 2 * 800_000) + (bytes(7) + b"\x01x") * 800_000
)
HEAVY_HEADERS: Final = tuple(f"h{number}: {number}" for number in range(99))


def _kimberlite(of: str, message: k.Message, size: int = SIZE, login: bool = False) -> bytes:
    greeting = kimberlite.asked(k.Handshake(kimberlite.DIALECTS[of].version, KEY if login else None), of, tenant=1)
    return (greeting if login else b"") + many(kimberlite.asked(message, of, tenant=1), size)


STRANGERS: Final = [
    tcp("flymq", NOBODY, "8 gzip frames of 32 MiB", BOMB * 8),
    tcp("flymq", NOBODY, "32 gzip frames of 32 MiB", BOMB * 32),
    tcp("flymq", NOBODY, "gzip logins of 32 MiB", packed(Op.AUTH, bytes(MAX_PAYLOAD)) * 8),
    tcp("flymq", NOBODY, "gzip PRODUCE_BATCH", packed(Op.PRODUCE_BATCH, _flymq_batch(25_000)) * 8),
    tcp("flymq", NOBODY, "WHOAMI", many(flymq(Op.WHOAMI, b""))),
    tcp("flymq", NOBODY, "ROLE_LIST", many(flymq(Op.ROLE_LIST, b""))),
    tcp("flymq", NOBODY, "unknown opcodes", many(flymq(0x7F, b""))),
    tcp("flymq", NOBODY, "32 connections of WHOAMI", many(flymq(Op.WHOAMI, b"")), connections=32),
    tcp("http", NOBODY, "GET /metrics", many(get("/metrics"), 255_000)),
    tcp("http", NOBODY, "GET /health", many(get("/health"))),
    tcp("http", NOBODY, "GET with 99 headers", many(get("/", *HEAVY_HEADERS))),
    tcp("http", NOBODY, "chunks of one byte", CHUNKS),
    tcp("http", NOBODY, "16 connections of GET /metrics", many(get("/metrics"), 50_000), connections=16),
    tcp("rustlog", NOBODY, "pings, JSON", many(frame(JSON_PING))),
    tcp("rustlog", NOBODY, "pings, binary", many(frame(BINARY_PING))),
    tcp("rustlog", NOBODY, "unknown types", many(frame(b"\x7f"))),
    tcp("rustlog", NOBODY, "unknown types, JSON", many(frame(b'{"type":"X"}'))),
    tcp("rustlog", NOBODY, "denied fetches", many(frame(json_request("DescribeTopic", topic="t")))),
    tcp("rustlog", NOBODY, "1000 records each, JSON", many(frame(JSON_PRODUCE))),
    tcp("rustlog", NOBODY, "2,000,000 records, JSON", frame(JSON_MANY)),
    tcp("rustlog", NOBODY, "10 MB of escapes", frame(JSON_ESCAPES)),
    tcp("rustlog", NOBODY, "10 MB of numbers", frame(JSON_NUMBERS)),
    tcp("rustlog", NOBODY, "2,600,000 records, binary", frame(EMPTY_RECORDS)),
    tcp("rustlog", NOBODY, "1,600,000 mixed records", frame(MIXED_RECORDS)),
    tcp("blipmq", NOBODY, "pings, version 1", blipmq.encode_hello(1, 1), many(blipmq.encode_ping(9))),
    tcp("blipmq", NOBODY, "pings, version 2", blipmq.encode_hello(1, 2), many(blipmq.encode_ping(9))),
    tcp("blipmq", NOBODY, "HELLO again", many(blipmq.encode_hello(1, 1))),
    tcp("blipmq", NOBODY, "wrong keys", blipmq.encode_hello(1, 1), many(blipmq.encode_auth(2, "x"))),
    *(
        tcp("kimberlite", NOBODY, f"requests, {of}", _kimberlite(of, message))
        for of, message in (
            ("seed", k.AppendEvents(1, [b""] * 50, 0)),
            ("v0.1", k.AppendEvents(1, [b""] * 50, 0)),
            ("v0.4", k.AppendEvents(1, [b""] * 50, 0)),
            ("5a", k.ListTables()),
            ("5b", k.GetServerInfo()),
        )
    ),
    tcp("kimberlite", NOBODY, "wrong tokens", _kimberlite("5b", k.Handshake(5, "x"))),
]

_DENIED: Final = blipmq.encode_publish(3, 0, b"other", b"")
_LOW_FETCH: Final = flymq(Op.FETCH_BINARY, string(TOPIC.encode()) + struct.pack(">IQI", 0, 0, 10_000) + string(b"low"))
_LOW_EVENTS: Final = k.AppendEvents(1, [b""] * 65_000)

LOW_KEYS: Final = [
    tcp("flymq", LOW, "8 gzip frames of 32 MiB", FLYMQ_LOGIN, BOMB * 8),
    tcp("flymq", LOW, "WHOAMI", FLYMQ_LOGIN, many(flymq(Op.WHOAMI, b""))),
    tcp("flymq", LOW, "ROLE_LIST", FLYMQ_LOGIN, many(flymq(Op.ROLE_LIST, b""))),
    tcp("flymq", LOW, "LIST_TOPICS", FLYMQ_LOGIN, many(flymq(Op.LIST_TOPICS, b""))),
    tcp("flymq", LOW, "fetches of 10,000", FLYMQ_LOGIN, _LOW_FETCH * 20),
    tcp("flymq", LOW, "PRODUCE_BATCH of 25,000", FLYMQ_LOGIN, flymq(Op.PRODUCE_BATCH, _flymq_batch(25_000)) * 4),
    tcp("flymq", LOW, "gzip PRODUCE_BATCH", FLYMQ_LOGIN, packed(Op.PRODUCE_BATCH, _flymq_batch(25_000)) * 8),
    *(tcp("blipmq", LOW, f"pings, version {v}", BLIPMQ_LOGIN[v], many(blipmq.encode_ping(9))) for v in (1, 2)),
    tcp(
        "blipmq",
        LOW,
        "two publishes, one ping",
        BLIPMQ_LOGIN[1],
        many(_DENIED * 2 + blipmq.encode_ping(4)),
    ),
    tcp("blipmq", LOW, "publishes", BLIPMQ_LOGIN[2], many(blipmq.encode_publish(3, 1, TOPIC.encode(), b""))),
    tcp("blipmq", LOW, "polls of no queue", BLIPMQ_LOGIN[1], many(blipmq.encode_poll(3, 9))),
    *(
        tcp("kimberlite", LOW, f"requests, {of}", _kimberlite(of, k.ReadEvents(1, 0, 100), 100_000, login=True))
        for of in ("v0.1", "v0.4", "5a", "5b")
    ),
    *(
        tcp("kimberlite", LOW, f"65,000 events, {of}", _kimberlite(of, _LOW_EVENTS, 2_000_000, login=True))
        for of in ("seed", "v0.1")
    ),
]

OPEN: Final = [  # with security off: what one client that may everything can do to others
    tcp("rustlog", ANYBODY, "100,000 records, binary", frame(binary_produce(TOPIC.encode(), 0, *[b""] * 100_000)) * 4),
    tcp("rustlog", ANYBODY, "2,600,000 records, binary", frame(EMPTY_RECORDS) * 2),
    tcp("rustlog", ANYBODY, "1000 records each, JSON", many(frame(JSON_PRODUCE))),
    tcp("rustlog", ANYBODY, "unknown topics", many(frame(json_request("DescribeTopic", topic="t")))),
    tcp("http", ANYBODY, "GET /metrics", many(get("/metrics"), 10_000)),
    tcp("http", ANYBODY, "64 KiB of HEAD /metrics", many(get("/metrics").replace(b"GET", b"HEAD"), 64 << 10)),
    tcp("flymq", ANYBODY, "WHOAMI", many(flymq(Op.WHOAMI, b""))),
    tcp("flymq", ANYBODY, "8 gzip frames of 32 MiB", BOMB * 8),
    tcp("blipmq", ANYBODY, "16 connections of pings", BLIPMQ_LOGIN[1], many(blipmq.encode_ping(9)), connections=16),
]


# -- attackers by QUIC


def quic(scene: Callable[[BrokerProcess], object]) -> Attack:
    def attack(broker: BrokerProcess) -> None:
        asyncio.run(asyncio.wait_for(scene(broker), DEADLINE))  # type: ignore[arg-type]

    return attack


def on_streams(data: bytes, streams: int = 1, *, login: bool = False) -> Attack:
    """The same on each of so many streams, until all have ended or the connection is closed."""

    async def scene(broker: BrokerProcess) -> None:
        async with joined(broker.endpoint("felix")) as peer:
            greeting = felix.encode(felix.Auth(NAMES[0], KEY, KNOWN)) if login else b""
            opened = [peer.open() for _ in range(streams)]
            for one, _ in opened:
                if peer.closed_with is None:
                    one.send(greeting + data)
                    one.finish()
            await _ended(peer, lambda: all(replies.over for _, replies in opened))

    return quic(scene)


async def _ended(peer: Peer, over: Callable[[], bool]) -> None:
    while not over() and peer.closed_with is None:  # noqa: ASYNC110 - whatever comes first
        await asyncio.sleep(0.01)


async def _handshakes(broker: BrokerProcess) -> None:
    async def one() -> None:
        async with joined(broker.endpoint("felix")):
            pass

    await asyncio.gather(*(one() for _ in range(100)))


_PUBLISH: Final = felix.encode(felix.Publish(*NAMES, TOPIC, b"x", request_id=1))
_WRONG: Final = felix.encode(felix.Auth("default", "x", KNOWN))
_BULK: Final = felix.encode(felix.PublishBatch(*NAMES, TOPIC, [b""] * 90_000, request_id=1))

FELIX: Final = [
    Burst("publishes, one stream", "felix", NOBODY, on_streams(many(_PUBLISH))),
    Burst("publishes, 500 streams", "felix", NOBODY, on_streams(_PUBLISH * 10, 500)),
    Burst("wrong tokens, 500 streams", "felix", NOBODY, on_streams(_WRONG, 500)),
    Burst("batches of 90,000, JSON", "felix", NOBODY, on_streams(_BULK * 4)),
    Burst("100 handshakes at once", "felix", NOBODY, quic(_handshakes)),
    Burst("publishes, one stream", "felix", LOW, on_streams(many(_PUBLISH), login=True)),
    Burst("publishes, 100 streams", "felix", LOW, on_streams(many(_PUBLISH, 20_000), 100, login=True)),
    Burst("batches of 100,000", "felix", LOW, on_streams(batch(TOPIC, *[b""] * 100_000) * 4, login=True)),
    Burst("batches of 90,000, JSON", "felix", LOW, on_streams(_BULK * 4, login=True)),
]

BURSTS: Final = [*STRANGERS, *LOW_KEYS, *FELIX, *OPEN]


# -- by everybody, again and again

FLOOD_SECONDS: Final = 5.0
FLOOD_ROUNDS: Final = 3
_CONNECTIONS: Final = 8  # of each kind
_FLOODERS: Final = [
    stream("flymq", many(flymq(Op.WHOAMI, b"")), connections=_CONNECTIONS),
    stream("flymq", BOMB * 8, connections=_CONNECTIONS),
    stream("http", many(get("/metrics"), 50_000), connections=_CONNECTIONS),
    stream("rustlog", many(frame(BINARY_PING), 200_000), connections=_CONNECTIONS),
    stream("blipmq", blipmq.encode_hello(1, 1), many(blipmq.encode_auth(2, "x")), connections=_CONNECTIONS),
    stream("kimberlite", _kimberlite("5b", k.Handshake(5, "x")), connections=_CONNECTIONS),
    on_streams(_WRONG, 50),
]


def flood(seconds: float) -> Burst:
    """At every door at once, each again as soon as the broker is done with it."""

    def attack(broker: BrokerProcess) -> None:
        end = time.monotonic() + seconds

        def again(one: Attack) -> None:
            while time.monotonic() < end:
                with suppress(OSError, ConnectFailed):
                    one(broker)

        threads = [threading.Thread(target=again, args=(one,)) for one in _FLOODERS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return Burst(f"a flood of {seconds:g} s", "all doors", NOBODY, attack)


# -- who measures


class Wait(NamedTuple):
    worst: float  # s of the broker's processor time that one ping waited,
    held: float  # and the most of one of its threads: on a busy machine, others work on while the loop has to wait
    pings: int
    spent: float  # s of the broker's processor time in all


def waits(broker: BrokerProcess, attack: Attack) -> Wait:
    """Ping from before the burst until after it."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            attack(broker)
        except BaseException as failure:  # noqa: BLE001 - raised again where the test can see it
            failures.append(failure)

    process = broker.process.pid
    thread = threading.Thread(target=run)
    with Wire(broker.endpoint("rustlog")) as wire:
        wire.ask(BINARY_PING)
        began = before = processor_seconds(process)
        worst, held, pings, after = 0.0, 0.0, 0, 5
        thread.start()
        while after:
            assert wire.ask(BINARY_PING) == BINARY_PING
            now = processor_seconds(process)
            waited = [seconds - before.get(task, 0.0) for task, seconds in now.items()]
            worst, held = max(worst, sum(waited)), max(held, *waited)
            before, pings = now, pings + 1
            after -= not thread.is_alive()
    thread.join()
    if failures:
        raise failures[0]
    return Wait(worst, held, pings, sum(before.values()) - sum(began.values()))


@contextmanager
def brokers(directory: Path) -> Iterator[dict[bool, BrokerProcess]]:
    """Two of them, by whether security is on."""
    secured = {"PENSTOCK_SECURITY__MODE": "on", "PENSTOCK_SECURITY__LOCKOUT_FAILURES": "0", **SETTINGS}
    with ExitStack() as stack:
        found = {}
        for enforced, environment in ((True, secured), (False, SETTINGS)):
            data = directory / str(enforced)
            if enforced:
                _seed(data, environment)
            process = BrokerProcess(data, "--durability", "written", "--listen", "felix=127.0.0.1:0", **environment)
            found[enforced] = stack.enter_context(process).ready()
            if not enforced:
                _fill(found[enforced])
        yield found


SETTINGS: Final = {"PENSTOCK_LOG__FILE_BYTES": "64MiB", "PENSTOCK_KIMBERLITE__TENANTS": "1=default"}


def _seed(data: Path, environment: dict[str, str]) -> None:
    with BrokerProcess(data, "--durability", "written", **SETTINGS) as broker:
        _fill(broker.ready())
        broker.process.terminate()
        broker.finish()
    allow = ("--allow", "read,write,describe", "--topic", TOPIC, "--data-dir", str(data))
    assert penstock("keys", "add", "low", *allow, "--key-stdin", stdin=f"{KEY}\n", **environment).returncode == 0
    roles = ("--role", "producer", "--role", "consumer", "--data-dir", str(data))
    added = penstock("users", "add", "low", *roles, "--password-stdin", stdin=f"{PASSWORD}\n", **environment)
    assert added.returncode == 0, added


def _fill(broker: BrokerProcess) -> None:
    with Wire(broker.endpoint("rustlog")) as wire:
        wire.ask(binary_create(TOPIC.encode(), 1))
        for _ in range(10):
            wire.ask(binary_produce(TOPIC.encode(), 0, *[b"x" * 100] * 10_000))


def main(arguments: Sequence[str]) -> None:
    """The table, of all bursts or of those whose name or door has this text."""
    with tempfile.TemporaryDirectory() as directory, brokers(Path(directory)) as found:
        print("| Door | Who | Burst | Longest wait of a ping | Processor time in all |\n|---|---|---|---|---|")
        for burst in BURSTS:
            if not arguments or any(text in f"{burst.door} {burst.name} {burst.who}" for text in arguments):
                _print_row(burst, min(waits(found[burst.secured], burst.attack) for _ in range(2)))
        burst = flood(FLOOD_SECONDS)
        for number in range(FLOOD_ROUNDS if not arguments or "flood" in arguments else 0):
            found_now = waits(found[burst.secured], burst.attack)
            _print_row(burst._replace(name=f"{burst.name}, round {number + 1}, {found_now.pings} pings"), found_now)


def _print_row(burst: Burst, wait: Wait) -> None:
    columns = burst.door, burst.who, burst.name, f"{wait.worst * 1000:.1f} ms", f"{wait.spent * 1000:.0f} ms"
    print(f"| {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
