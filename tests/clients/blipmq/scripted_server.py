"""A small BlipMQ server for the client's tests: queues in memory, both versions, and faults on demand.

Its subscriptions outlive connections. It never delivers anything a second time by itself.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque

from tests.clients import scripted_server

from penstock.broker.security.access import Identity
from penstock.doors.blipmq.states import Handshake
from penstock.wire.blipmq import codec, frames
from penstock.wire.blipmq.errors import UNKNOWN_DELIVERY, Nack
from penstock.wire.blipmq.frames import Frame, Framer, FrameType


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


class ScriptedServer(scripted_server.ScriptedServer["_Peer"]):
    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.queues: dict[int, Queue] = {}
        self.frames: list[Frame] = []  # all that arrived
        self.reads: list[list[FrameType]] = []  # the types of those that arrived together
        self.published: list[tuple[int, int, bytes, bytes]] = []  # QoS, TTL, topic, value
        self.refuse_publishes: deque[Nack | None] = deque()  # for those to come; none when empty
        self.refuse: dict[FrameType, Nack] = {}  # for every frame of this type
        self.drop_at: deque[FrameType] = deque()  # close the connection instead of carrying out such a frame
        self.mute: set[FrameType] = set()  # frames that are ignored
        self.inject = b""  # sent instead of the reply to the next PING
        self.split = False  # every byte is sent by itself

    def peer(self, writer: asyncio.StreamWriter) -> _Peer:
        return _Peer(self, writer)

    def count(self, kind: FrameType) -> int:
        return sum(frame[0] == kind for frame in self.frames)

    def publish(self, topic: str, *values: bytes, qos: int = 1) -> None:
        def store() -> None:
            for value in values:
                self.store(topic.encode(), qos, value)

        self.call(store)

    def store(self, topic: bytes, qos: int, value: bytes) -> None:
        for queue in self.queues.values():
            if queue.topic == topic:
                queue.waiting.append((min(qos, queue.qos), value))
        for peer in self.peers:
            peer.push()


class _Peer(scripted_server.Peer):
    def __init__(self, server: ScriptedServer, writer: asyncio.StreamWriter) -> None:
        super().__init__(writer)
        self.server = server
        self._framer = Framer()
        self._handshake = Handshake(lambda key: Identity(key) if key == "good" else None)
        self._attached: list[Queue] = []  # version 2: whose messages are sent here

    def received(self, data: bytes) -> bool:
        arrived = self._framer.feed(data)
        assert self._framer.error is None
        self.server.frames += arrived
        self.server.reads.append([FrameType(frame[0]) for frame in arrived])
        return all(map(self.carry_out, arrived))

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
        if self.server.split:
            self.write_bytewise(data)
        else:
            self.writer.write(data)

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
