"""Messages between processes: tickets and actions of Flight, and the RPC of workers."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import struct
from collections.abc import Coroutine
from types import ModuleType
from typing import Any, Final

import msgspec
from tests.fuzz.targets.target import Script, Target, same, script

from penstock.flight import wire
from penstock.workers import rpc
from penstock.workers.flight import rpc_messages as flight_messages
from penstock.workers.sql import rpc_messages as sql_messages
from penstock.workers.tables import rpc_messages as table_messages


def _structs(module: ModuleType) -> list[type[msgspec.Struct]]:
    found = [each for _, each in inspect.getmembers(module, inspect.isclass) if issubclass(each, msgspec.Struct)]
    return sorted((each for each in found if each.__module__ == module.__name__), key=lambda each: each.__name__)


_FLIGHT: Final = [each for each in _structs(wire) if issubclass(each, wire.Message) and each is not wire.Message]
_WORKERS: Final = [each for module in (flight_messages, sql_messages, table_messages) for each in _structs(module)]


def flight(data: bytes) -> None:
    """Behind the number of a message. What it says can be written and says the same."""
    if not data:
        return
    kind = _FLIGHT[data[0] % len(_FLIGHT)]
    try:
        found = wire.decode(data[1:], kind, "the message")
    except wire.Unusable as error:
        assert str(error)
        return
    same(wire.decode(wire.encode(found), kind, "the message"), found)


def worker(data: bytes) -> None:
    if not data:
        return
    kind = _WORKERS[data[0] % len(_WORKERS)]
    try:
        found = msgspec.msgpack.decode(data[1:], type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # answered as an internal error
    again = msgspec.msgpack.encode(found)
    same(msgspec.msgpack.encode(msgspec.msgpack.decode(again, type=kind)), again)


class _Loop:
    """Runs each task to its end when it is made: no handler here waits for anything."""

    def create_task(self, work: Coroutine[Any, Any, None]) -> _Task:
        with contextlib.suppress(StopIteration):
            work.send(None)
        work.close()
        return _Task()


class _Task:
    def add_done_callback(self, callback: Any) -> None:
        callback(self)

    def cancel(self) -> None: ...


class _Transport:
    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return False


async def _echo(body: bytes) -> bytes:
    return body


def frames(data: bytes) -> None:
    """The broker's end: every request that is one gets one reply; what is none ends the worker's connection."""
    run = script(data)
    same(_answered(run), _answered(Script(run.stream)))


def _answered(run: Script) -> bytes:
    server, transport = rpc.RpcServer({"echo": _echo}), _Transport()
    server.connection_made(transport)  # type: ignore[arg-type]
    running, asyncio.get_running_loop = asyncio.get_running_loop, _Loop  # type: ignore[assignment]
    quiet = logging.getLogger(rpc.__name__)
    quiet.disabled = True  # a method that nobody has is a mistake of ours, and told as one
    try:
        for piece, _ in run.pieces():
            server.data_received(piece)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    finally:
        asyncio.get_running_loop = running
        quiet.disabled = False
    return transport.sent


def _messages() -> list[bytes]:
    texts: dict[type[Any], bytes] = {
        wire.Ticket: b'{"topic":"t","partition":1,"start":2,"end":3,"columns":["key","value"]}',
        wire.TopicCommand: b'{"topic":"t"}',
        wire.BoundsOf: b'{"topics":["t","u"]}',
        wire.OffsetsAt: b'{"at":[{"topic":"t","partition":0,"timestamp":-1}]}',
        wire.Fitting: b'{"ranges":[{"topic":"t","partition":0,"start":0,"end":9}],"max_bytes":100}',
        wire.Publication: b'{"app":"a","batch":1,"refs":["r"]}',
        wire.PutCommand: b'{"topic":"t","app":"a","batch":1,"task":"x","attempt":2}',
        wire.CommitOffsets: b'{"group":"g","offsets":[{"topic":"t","partition":0,"offset":5}]}',
        wire.SchemaOf: b'{"subject":"s","version":1}',
        wire.TableOf: b'{"topic":"t"}',
    }
    return [bytes((_FLIGHT.index(kind),)) + text for kind, text in texts.items()]


def _worker_messages() -> list[bytes]:
    identity: list[Any] = ["a", "t", "127.0.0.1:1", [], None, [], []]
    bodies: list[Any] = [
        [identity, ["t", "n"], ["a", 1]],
        [1, "x", b"y"],
        ["peer", "tenant", None, "secret"],
        {"job": {}},
    ]
    return [bytes((n,)) + msgspec.msgpack.encode(bodies[n % len(bodies)]) for n in range(len(_WORKERS))]


def _rpc() -> list[bytes]:
    bodies = [msgspec.msgpack.encode((n, method, b"body")) for n, method in enumerate(("echo", "nothing", ""))]
    whole = b"".join(struct.pack("<I", len(body)) + body for body in bodies)
    return [Script(whole, b"\x40\x60\xa0").encode(), Script(whole[:9]).encode()]


TARGETS: Final = (
    Target("processes.flight", flight, _messages),
    Target("processes.worker", worker, _worker_messages),
    Target("processes.rpc", frames, _rpc),
)
