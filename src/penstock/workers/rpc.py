"""RPC between the broker and its workers: requests of a worker process, answered by the broker, over a socket pair that
the worker inherits. Nobody else can reach it, so there is no authentication; the broker checks permissions by the
identity in the request.

A frame is its length (u32, little-endian) and a msgpack array: (id, method, body) for a request, (id, error kind or "",
body) for a reply. Replies are sent in the order of completion.
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
from penstock.typed_decoding import decode_msgpack

logger = logging.getLogger(__name__)

Handler = Callable[[bytes], Awaitable[bytes]]

_LENGTH: Final = struct.Struct("<I")
MAX_FRAME: Final = 64 << 20  # only our own code uses this socket: a larger one is a bug, not an attack
INTERNAL: Final = "Internal"

RequestT = TypeVar("RequestT", bound=msgspec.Struct)
Result = TypeVar("Result")
T = TypeVar("T")


class _Request(msgspec.Struct, array_like=True):
    id: int
    method: str
    body: bytes


class _Reply(msgspec.Struct, array_like=True):
    id: int
    error: str
    body: bytes


def _frame(message: msgspec.Struct) -> bytes:
    data = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(data)) + data


# -- broker side


def typed(kind: type[RequestT], handler: Callable[[RequestT], Awaitable[msgspec.Struct]]) -> Handler:
    """A handler for one type of request."""
    decoder = msgspec.msgpack.Decoder(kind)

    async def handle(body: bytes) -> bytes:
        return msgspec.msgpack.encode(await handler(decoder.decode(body)))

    return handle


async def committed(group: CommitGroup | None) -> None:
    """Wait until the group is durable. Raises the group's error."""
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
    """Run deferred work off the loop, and return its result."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    work.start(executor, lambda: None if done.done() else done.set_result(None))
    await done
    return work.finish()


class RpcServer(asyncio.Protocol):
    """The broker's end of the socket to one worker."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._buffer = bytearray()
        self._transport: asyncio.WriteTransport | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is not a subclass

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - the cause does not matter
        for task in self._tasks:
            task.cancel()

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
            request = decode_msgpack(bytes(buffer[start:at]), _Request)
            task = asyncio.get_running_loop().create_task(self._handle(request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        del buffer[:at]

    async def _handle(self, request: _Request) -> None:
        reply = _Reply(request.id, "", b"")
        try:
            handler = self._handlers.get(request.method)
            if handler is None:
                raise ValueError(f"there is no handler for {request.method}")
            reply.body = await handler(request.body)
        except (BrokerError, LogError) as error:
            reply.error, reply.body = type(error).__name__, str(error).encode()
        except Exception:
            logger.exception("a request of a worker failed: %s", request.method, extra={"method": request.method})
            reply.error, reply.body = INTERNAL, b"internal error; the broker's log tells more"
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_frame(reply))


# -- worker side


class RemoteError(Exception):
    """The broker refused a request: `kind` is the name of the error's class."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _PendingCall:
    __slots__ = ("done", "reply")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.reply: _Reply | None = None


class RpcClient:
    """The worker's end: calls block, and may come from any thread. The worker exits when the broker has exited."""

    def __init__(self, sock: socket.socket, on_lost: Callable[[], None] | None = None) -> None:
        self._socket = sock
        self._on_lost = on_lost or _exit
        self._write_lock = threading.Lock()
        self._pending: dict[int, _PendingCall] = {}
        self._last_id = 0
        self._lost = False
        threading.Thread(target=self._read, name="rpc", daemon=True).start()

    @classmethod
    def inherited(cls, descriptor: str) -> RpcClient:
        """The client on the descriptor that is the worker's only argument."""
        return cls(socket.socket(fileno=int(descriptor)))

    def call(self, method: str, request: msgspec.Struct, reply: type[T]) -> T:
        """Call a method, and wait for its reply. Raises RemoteError."""
        call = _PendingCall()
        with self._write_lock:
            self._last_id += 1
            self._pending[self._last_id] = call
            if not self._lost:
                with contextlib.suppress(OSError):  # the broker has exited; `_read` notices too
                    self._socket.sendall(_frame(_Request(self._last_id, method, msgspec.msgpack.encode(request))))
        if self._lost:
            call.done.set()
        call.done.wait()
        if call.reply is None:
            raise RemoteError("Gone", "the broker has gone")
        if call.reply.error:
            raise RemoteError(call.reply.error, call.reply.body.decode())
        return decode_msgpack(call.reply.body, reply)

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as stream:
                while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
                    (length,) = _LENGTH.unpack(head)
                    reply = decode_msgpack(stream.read(length), _Reply)
                    call = self._pending.pop(reply.id)
                    call.reply = reply
                    call.done.set()
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("the connection to the broker broke: %s", error)
        self._lost = True
        for call in list(self._pending.values()):
            call.done.set()
        self._on_lost()


def _exit() -> None:
    """Exit at once: without the broker no work is worth continuing, and all of it may be interrupted at any moment."""
    os._exit(0)
