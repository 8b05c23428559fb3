"""A small BlipMQ server for the client's tests: queues in memory, both versions, and faults on demand.

It speaks through real sockets, on a thread of its own, so that blocking and asyncio clients meet the same server. Its
subscriptions outlive connections. It never delivers anything a second time by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.broker.security.access import Identity
from penstock.doors.blipmq.handshake import Handshake
from penstock.wire.blipmq import codec, frames
from penstock.wire.blipmq.errors import UNKNOWN_DELIVERY, Nack
from penstock.wire.blipmq.frames import Frame, Framer, FrameType

T = TypeVar("T")


class Queue:
    """A subscription."""

    def __init__(self, number: int, topic: bytes, qos: int) -> None:
        self.id = number
        self.topic = topic
        self.qos = qos
        self.waiting: deque[tuple[int, bytes]] = deque()  # effective QoS, value
        self.in_flight: dict[int, bytes] = {}
        self.acked: list[bytes] = []
        self._tags = 0

    def take(self) -> tuple[int, int, bytes] | None:
        """QoS, tag and value of the next message."""
        if not self.waiting:
            return None
        qos, value = self.waiting.popleft()
        self._tags += 1
        if qos:
            self.in_flight[self._tags] = value
        return qos, self._tags if qos else 0, value


class ScriptedServer:
    """Use as a context manager. `port` is known from the start; connections to it are refused outside."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.queues: dict[int, Queue] = {}
        self.frames: list[Frame] = []  # all that arrived
        self.reads: list[list[FrameType]] = []  # the types of those that arrived together
        self.published: list[tuple[int, int, bytes, bytes]] = []  # QoS, TTL, topic, value
        self.connections = 0
        self.refuse_publishes: deque[Nack | None] = deque()  # for those to come; none when empty
        self.refuse: dict[FrameType, Nack] = {}  # for every frame of this type
        self.drop_at: deque[FrameType] = deque()  # close the connection instead of carrying out such a frame
        self.mute: set[FrameType] = set()  # frames that are ignored
        self.inject = b""  # sent instead of the reply to the next PING
        self.split = False  # every byte is sent by itself
        self._tls = tls
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._arrived = threading.Condition()
        self._peers: set[_Peer] = set()

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        # A client that does nothing does not answer TLS's goodbye either: do not wait for it.
        patience = None if self._tls is None else 0.01
        self._server = self._run(
            asyncio.start_server(self._handle, sock=self._socket, ssl=self._tls, ssl_shutdown_timeout=patience)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- what tests call

    def wait_for(self, ready: Callable[[], bool]) -> None:
        """Wait until this holds."""
        with self._arrived:
            assert self._arrived.wait_for(ready, timeout=10)

    def count(self, kind: FrameType) -> int:
        return sum(frame[0] == kind for frame in self.frames)

    def publish(self, topic: str, *values: bytes, qos: int = 1) -> None:
        self._run(self._publish(topic.encode(), qos, values))

    def drop_connections(self) -> None:
        self._run(self._drop())

    def wait_until_alone(self) -> None:
        """Wait until the server has noticed that its clients are gone: until then it may send them messages."""
        self._run(self._alone())

    # -- on the thread of the loop

    def _run(self, job: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(job, self._loop).result(10)

    async def _publish(self, topic: bytes, qos: int, values: tuple[bytes, ...]) -> None:
        for value in values:
            self.store(topic, qos, value)

    async def _stop(self) -> None:
        self._server.close()
        await self._drop()

    async def _drop(self) -> None:
        for peer in self._peers:
            peer.writer.close()
        await self._alone()

    async def _alone(self) -> None:
        if self._peers:
            await asyncio.wait([peer.task for peer in self._peers], timeout=10)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        peer = _Peer(self, writer)
        self._peers.add(peer)
        framer = Framer()
        try:
            while data := await reader.read(1 << 20):
                arrived = framer.feed(data)
                assert framer.error is None
                with self._arrived:
                    self.frames += arrived
                    self.reads.append([FrameType(frame[0]) for frame in arrived])
                if not all(map(peer.carry_out, arrived)):
                    break
                with self._arrived:
                    self._arrived.notify_all()
                await writer.drain()
        except OSError:
            pass  # the client went away
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._peers.discard(peer)

    def store(self, topic: bytes, qos: int, value: bytes) -> None:
        for queue in self.queues.values():
            if queue.topic == topic:
                queue.waiting.append((min(qos, queue.qos), value))
        for peer in self._peers:
            peer.push()


class _Peer:
    """A connection, seen from the server."""

    def __init__(self, server: ScriptedServer, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.writer = writer
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self._handshake = Handshake(lambda key: Identity(key) if key == "good" else None)
        self._attached: list[Queue] = []  # version 2: whose messages are sent here

    def carry_out(self, frame: Frame) -> bool:
        """False if the connection ends with it."""
        kind, correlation, _ = frame
        server = self.server
        if server.drop_at and server.drop_at[0] == kind:
            server.drop_at.popleft()
            return False
        if kind in server.mute:
            return True
        if (nack := server.refuse.get(FrameType(kind))) is not None:
            self._send(codec.encode_nack(correlation, *nack))
            return True
        reply = self._handshake.step(frame)
        if reply is None:
            handlers = {
                frames.PUBLISH: self._publish,
                frames.SUBSCRIBE: self._subscribe,
                frames.ACK: self._ack,
                frames.POLL: self._poll,
                frames.PING: self._ping,
            }
            reply = handlers[kind](correlation, frame[2])
        self._send(reply)
        self.push()
        return True

    def push(self) -> None:
        for queue in self._attached:
            while (taken := queue.take()) is not None:
                qos, tag, value = taken
                self._send(codec.encode_deliver(tag, qos, queue.topic, value))

    def _send(self, data: bytes) -> None:
        pieces = [data] if not self.server.split else [bytes([byte]) for byte in data]
        for piece in pieces:
            self.writer.write(piece)

    def _publish(self, correlation: int, payload: bytes) -> bytes:
        server = self.server
        if server.refuse_publishes and (nack := server.refuse_publishes.popleft()) is not None:
            return codec.encode_nack(correlation, *nack)
        decode = codec.decode_publish if self._handshake.version == 1 else codec.decode_publish_v2
        fields = decode(payload)
        assert fields is not None
        qos, ttl, topic, start = fields
        server.published.append((qos, ttl, topic, payload[start:]))
        server.store(topic, qos, payload[start:])
        return b""

    def _subscribe(self, correlation: int, payload: bytes) -> bytes:
        fields = codec.decode_subscribe(payload)
        assert fields is not None
        queue = Queue(len(self.server.queues) + 1, *fields)
        self.server.queues[queue.id] = queue
        if self._handshake.version == 2:
            self._attached.append(queue)
        return codec.encode_ack(correlation, queue.id)

    def _ack(self, tag: int, payload: bytes) -> bytes:
        queue = self._queue(payload)
        if queue is None or tag not in queue.in_flight:
            return codec.encode_nack(tag, *UNKNOWN_DELIVERY)
        queue.acked.append(queue.in_flight.pop(tag))
        return b""

    def _poll(self, correlation: int, payload: bytes) -> bytes:
        queue = self._queue(payload)
        if queue is None:
            return b""
        if self._handshake.version == 2:
            self._attached.append(queue)
            return b""
        if (taken := queue.take()) is None:
            return b""
        qos, tag, value = taken
        return codec.encode_delivery(tag if qos else correlation, qos, queue.topic, value)

    def _ping(self, correlation: int, _payload: bytes) -> bytes:
        if self.server.inject:
            data, self.server.inject = self.server.inject, b""
            return data
        return codec.encode_pong(correlation)

    def _queue(self, payload: bytes) -> Queue | None:
        number = codec.decode_subscription_id(payload)
        assert number is not None
        return self.server.queues.get(number)
