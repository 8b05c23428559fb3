"""Between the broker and its own child processes: requests of a child, answered by the broker, over a socket pair that
the child inherits. Nobody else can reach it, so there is no proof of identity here; what a request is allowed to do is
checked by `core` with the identity that it names.

A frame is its length (u32, little-endian) and a msgpack array: (number, name, body) there, (number, kind of error or
"", body) back. Answers come in the order in which they are ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from penstock.broker.errors import BrokerError
from penstock.broker.runtime.executor import Deferred, Executor
from penstock.log.engine import CommitGroup
from penstock.log.errors import LogError

logger = logging.getLogger(__name__)

Handler = Callable[[bytes], Awaitable[bytes]]

_LENGTH: Final = struct.Struct("<I")
MAX_FRAME: Final = 64 << 20  # a mistake, not an attack, would be larger: only our own code speaks here
INTERNAL: Final = "Internal"

Request = TypeVar("Request", bound=msgspec.Struct)
Reply = TypeVar("Reply", bound=msgspec.Struct)
Result = TypeVar("Result")
T = TypeVar("T")


class _Call(msgspec.Struct, array_like=True):
    number: int
    name: str
    body: bytes


class _Answer(msgspec.Struct, array_like=True):
    number: int
    error: str
    body: bytes


def _frame(message: msgspec.Struct) -> bytes:
    data = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(data)) + data


# -- the broker's side


def typed(kind: type[Request], handler: Callable[[Request], Awaitable[msgspec.Struct]]) -> Handler:
    """A handler of one type of request."""
    decoder = msgspec.msgpack.Decoder(kind)

    async def handle(body: bytes) -> bytes:
        return msgspec.msgpack.encode(await handler(decoder.decode(body)))

    return handle


async def committed(group: CommitGroup | None) -> None:
    """Wait until what was appended is durable. Raises the group's error."""
    if group is None:
        return
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(group: CommitGroup) -> None:
        if done.done():
            return
        if group.error is None:
            done.set_result(None)
        else:
            done.set_exception(group.error)

    group.on_done(finish)
    await done


async def finished(work: Deferred[Any, Result], executor: Executor) -> Result:
    """Let a piece of work be done off the loop, and take what came of it."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    work.start(executor, lambda: None if done.done() else done.set_result(None))
    await done
    return work.finish()


class RpcServer(asyncio.Protocol):
    """The broker's end of the line to one child."""

    def __init__(self, handlers: Mapping[str, Handler], on_lost: Callable[[], None]) -> None:
        self._handlers = handlers
        self._on_lost = on_lost
        self._buffer = bytearray()
        self._transport: asyncio.WriteTransport | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is no subclass of it

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - the child is gone, whatever the cause
        for task in self._tasks:
            task.cancel()
        self._on_lost()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, at)
            if len(buffer) - at - _LENGTH.size < length:
                break
            start = at + _LENGTH.size
            at = start + length
            call = msgspec.msgpack.decode(bytes(buffer[start:at]), type=_Call)
            task = asyncio.get_running_loop().create_task(self._answer(call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        del buffer[:at]

    async def _answer(self, call: _Call) -> None:
        answer = _Answer(call.number, "", b"")
        try:
            handler = self._handlers.get(call.name)
            if handler is None:
                raise ValueError(f"there is no handler for {call.name}")
            answer.body = await handler(call.body)
        except (BrokerError, LogError) as error:
            answer.error, answer.body = type(error).__name__, str(error).encode()
        except Exception:
            logger.exception("a request of a child process failed: %s", call.name)
            answer.error, answer.body = INTERNAL, b"internal error; the broker's log tells more"
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_frame(answer))


# -- the child's side


class RemoteError(Exception):
    """What the broker refused: `kind` is the name of the error's class."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Waiting:
    __slots__ = ("answer", "arrived")

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.answer: _Answer | None = None


class RpcClient:
    """The child's end: calls block, and may come from any thread. When the broker is gone, so is the child."""

    def __init__(self, line: socket.socket, on_lost: Callable[[], None] | None = None) -> None:
        self._line = line
        self._on_lost = on_lost or _leave
        self._writing = threading.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._number = 0
        self._lost = False
        threading.Thread(target=self._read, name="backstage", daemon=True).start()

    @classmethod
    def inherited(cls, descriptor: str) -> RpcClient:
        """By the number of the descriptor, which is the child's only argument."""
        return cls(socket.socket(fileno=int(descriptor)))

    def call(self, name: str, request: msgspec.Struct, reply: type[T]) -> T:
        """Raises RemoteError."""
        waiting = _Waiting()
        with self._writing:
            self._number += 1
            number = self._number
            self._waiting[number] = waiting
            if not self._lost:
                with contextlib.suppress(OSError):  # the broker is gone, as `_read` finds too
                    self._line.sendall(_frame(_Call(number, name, msgspec.msgpack.encode(request))))
        if self._lost:
            waiting.arrived.set()
        waiting.arrived.wait()
        answer = waiting.answer
        if answer is None:
            raise RemoteError("Gone", "the broker has gone")
        if answer.error:
            raise RemoteError(answer.error, answer.body.decode())
        return msgspec.msgpack.decode(answer.body, type=reply)

    def _read(self) -> None:
        try:
            with self._line.makefile("rb") as stream:
                while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
                    (length,) = _LENGTH.unpack(head)
                    answer = msgspec.msgpack.decode(stream.read(length), type=_Answer)
                    waiting = self._waiting.pop(answer.number)
                    waiting.answer = answer
                    waiting.arrived.set()
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("the line to the broker broke: %s", error)
        self._lost = True
        for waiting in list(self._waiting.values()):
            waiting.arrived.set()
        self._on_lost()


def _leave() -> None:
    """Nothing that a child does is worth going on with alone, and all of it may be cut off at any moment."""
    os._exit(0)
