"""One BlipMQ connection: frames in, calls of the broker, frames out, in versions 1 and 2.

Frames are carried out strictly in order. Success is often silent here, so the order of replies is all that a client
has: whatever is sent waits behind the commits of everything before it, which makes a PONG the proof that all earlier
frames are settled. Neighbouring frames of the same kind are carried out together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Final, Literal

from penstock.broker.broker import Broker
from penstock.broker.errors import (
    AccessDenied,
    QueueNotFound,
    RecordRejected,
    RecordTooLarge,
    ShuttingDown,
)
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.queues.dequeue import AT_MOST_ONCE
from penstock.broker.security.access import Identity
from penstock.doors.blipmq.errors import EXPECTED, publish_refused, request_refused
from penstock.doors.blipmq.handshake import Handshake
from penstock.doors.blipmq.subscriptions import PollTask, Push
from penstock.doors.pipeline import FLUSH_BYTES, RequestPipeline
from penstock.doors.session import Channel, Door
from penstock.log.engine import OPEN, CommitGroup
from penstock.wire.blipmq import codec, messages
from penstock.wire.blipmq import frames as f
from penstock.wire.blipmq.errors import (
    EMPTY_TOPIC,
    INTERNAL_ERROR,
    INVALID_PUBLISH,
    INVALID_QOS,
    INVALID_SUBSCRIBE,
    NUL_IN_TOPIC,
    Nack,
)

SCOPE: Final = DEFAULT_SCOPE  # BlipMQ has no tenants
PARTITION: Final = 0  # where messages go: a publisher's messages on a topic stay in order
HELD_BYTES: Final = 1 << 20  # of replies that have not left, above which no more messages are taken for a client


class Publication:
    """What all messages with the same topic, QoS and TTL have in common, or why they are refused."""

    __slots__ = ("limit", "qos", "refusal", "topic", "ttl")

    def __init__(self, topic: str, qos: int, ttl: int, limit: int, refusal: Nack | None = None) -> None:
        self.topic = topic
        self.qos = qos
        self.ttl = ttl  # ms, or NO_TTL
        self.limit = limit  # bytes of the largest message that can be delivered
        self.refusal = refusal


class Portion:
    """Messages that are stored as one, and where they were among the frames."""

    __slots__ = ("publication", "runs", "values")

    def __init__(
        self,
        publication: Publication,
        runs: list[tuple[int, list[int]]] | None = None,
        values: list[bytes] | None = None,
    ) -> None:
        self.publication = publication
        self.runs = [] if runs is None else runs  # the first frame's place, and the correlation ids of all
        self.values = [] if values is None else values

    def singly(self) -> list[Portion]:
        """The same messages, each to be stored alone."""
        places = [(at + number, [each]) for at, ids in self.runs for number, each in enumerate(ids)]
        return [Portion(self.publication, [place], [value]) for place, value in zip(places, self.values, strict=True)]


class BlipMqSession(RequestPipeline):
    def __init__(self, broker: Broker, channel: Channel, identity: Identity) -> None:
        super().__init__(broker, channel, identity)
        self.version = 0
        self._framer = f.Framer()
        self._handshake = Handshake(self._check_key)
        self._frames: list[f.Frame] = []  # not carried out yet, from `_next` on
        self._next = 0
        self._held = 0  # bytes of those frames
        self._publications: dict[bytes, Publication] = {}  # by all that comes before the value
        self._written: CommitGroup | None = None  # of the last message or subscription of this connection
        self._reading = False  # a read is on its way to the disk
        self._paused: PollTask | None = None  # goes on before the next frame
        self._pushes: dict[int, Push] = {}  # version 2: subscriptions whose messages are sent here

    # -- what `RequestPipeline` asks

    def _take(self, data: bytes) -> None:
        frames = self._framer.feed(data)
        if self._framer.error is not None:
            self._listening = False
        if frames:
            if self._next == len(self._frames):
                self._frames = frames
            else:
                self._frames = self._frames[self._next :] + frames
            self._next = 0
            self._held += sum([len(payload) for _, _, payload in frames])

    @property
    def _idle(self) -> bool:
        return self._next == len(self._frames) and not self._waiters

    @property
    def _held_input(self) -> int:
        return self._framer.buffered + self._held

    def _forget(self) -> None:
        self._frames.clear()
        self._next = self._held = 0
        self._paused = None
        self._drop_pushes()

    def _drop_pushes(self) -> None:
        for push in self._pushes.values():
            push.stop()
        self._pushes.clear()

    def stop(self) -> None:
        self._drop_pushes()
        super().stop()

    def _replied(self) -> None:
        if self._pushes:
            self.progress()
        else:
            super()._replied()

    # -- the order of things

    def _carry_out(self) -> None:
        self._carry_out_frames()
        if self._pushes:
            for push in list(self._pushes.values()):
                push.work()

    def _carry_out_frames(self) -> None:
        while not self._reading and not self._full():
            if (self._paused is not None and not self._run_is_done()) or self._next == len(self._frames):
                return
            frame = self._frames[self._next]
            kind = frame[0]
            ready = self._handshake.ready
            if ready and (kind == f.POLL or kind == f.ACK):
                if self._must_settle():
                    return
                self._poll_run()
            elif ready and kind == f.PUBLISH:
                self._publish_run()
            elif not ready or kind <= f.AUTH or kind in (f.NACK, f.PONG):
                self.replies.put(self._handshake.step(frame) or b"")
                self.version = self._handshake.version
                self.identity = self._handshake.identity or self.identity
                self._done(1)
            elif kind == f.PING:
                self.replies.put(codec.encode_pong(frame[1]))
                self._done(1)
            elif self._must_settle():
                return
            else:
                self._subscribe(frame)
                self._done(1)

    def _full(self) -> bool:
        """Whether the client has to take earlier replies first."""
        if self.replies.held_bytes > FLUSH_BYTES:
            self.replies.flush()
            return self.channel.congested
        return False

    @property
    def _waiters(self) -> bool:
        return self._reading or self._paused is not None

    def _run_is_done(self) -> bool:
        """Let a run go on that had paused."""
        if (run := self._paused) is not None:
            self._paused = None
            run.go_on()
        return not self._waiters

    def must_pause(self, run: PollTask) -> bool:
        """Whether no more messages may be taken now. `run` goes on when earlier replies have left."""
        if self.replies.held_bytes > HELD_BYTES:
            self.replies.flush()
        if self.replies.held_bytes > HELD_BYTES or self.channel.congested:
            self._paused = run
            return True
        return False

    def _must_settle(self) -> bool:
        """A frame that looks at a topic waits for what this connection published, so that it finds it there."""
        return self._written is not None and self._written.state is OPEN

    def _done(self, count: int) -> None:
        first, self._next = self._next, self._next + count
        if self._next == len(self._frames):
            self._held = 0
        else:
            self._held -= sum([len(payload) for _, _, payload in self._frames[first : self._next]])

    def wait_for_disk(self) -> None:
        """Carry out nothing more until `disk_came`."""
        self._reading = True

    def disk_came(self) -> None:
        self._reading = False

    def resume(self) -> None:
        """Go on after a read from disk, unless there is another one."""
        if not self._closed:
            self.work()
            self.progress()

    @property
    def closed(self) -> bool:
        return self._closed

    # -- the handshake

    def _check_key(self, key: str) -> Identity | Literal["locked"] | None:
        return self.broker.keys.authenticate(key, self.channel.peer.rpartition(":")[0])

    # -- publishing

    def _publish_run(self) -> None:
        """All messages up to the next frame of another kind: those of a topic are stored as one, unless something
        comes between them that has to keep its place."""
        frames, at = self._frames, self._next
        decode = codec.decode_publish if self.version == 1 else codec.decode_publish_v2
        collected: dict[str, Portion] = {}  # by topic
        while at < len(frames) and frames[at][0] == f.PUBLISH:
            _, correlation, payload = frames[at]
            fields = decode(payload)
            if fields is None:
                self._store(collected)
                self._refuse(correlation, INVALID_PUBLISH)
                at += 1
                continue
            prefix = payload[: fields[3]]
            ids, values = codec.collect_publishes(frames, at, prefix)
            publication = self._publications.get(prefix) or self._judge(prefix)
            if publication.refusal is not None or max(map(len, values)) > publication.limit:
                self._store(collected)
                self._store_one_by_one(publication, ids, values)
            else:
                portion = collected.get(publication.topic)
                if portion is not None and portion.publication is not publication:
                    self._store(collected)
                    portion = None
                if portion is None:
                    portion = collected[publication.topic] = Portion(publication)
                portion.runs.append((at, ids))
                portion.values += values
            at += len(ids)
        self._store(collected)
        self._done(at - self._next)

    def _store_one_by_one(self, publication: Publication, ids: list[int], values: list[bytes]) -> None:
        """Some are refused: nobody is answered out of turn."""
        for at, (correlation, value) in enumerate(zip(ids, values, strict=True)):
            if publication.refusal is not None:
                self._refuse(correlation, publication.refusal)
            elif len(value) > publication.limit:
                error = RecordTooLarge(len(value), publication.limit)
                self._refuse(correlation, publish_refused(error, self.version))
            else:
                self._store({publication.topic: Portion(publication, [(at, [correlation])], [value])})

    def _store(self, collected: dict[str, Portion]) -> None:
        """Store what was collected, and forget it. Who is refused is told in the order of the frames; but at most once
        may be not at all, so that only who asked for more is told of the broker's own failures."""
        refused: list[tuple[int, list[int], Nack]] = []
        stored: dict[CommitGroup, list[Portion]] = {}
        waiting = list(collected.values())
        for portion in waiting:
            try:
                group = self._append(portion)
            except EXPECTED as error:
                if isinstance(error, RecordRejected) and len(portion.values) > 1:
                    waiting += portion.singly()  # one of them is at fault: each gets its own answer
                    continue
                nack = publish_refused(error, self.version)
                if portion.publication.qos or nack.code < INTERNAL_ERROR.code:
                    refused += [(at, ids, nack) for at, ids in portion.runs]
            else:
                stored.setdefault(group, []).append(portion)
        collected.clear()
        for group, portions in stored.items():
            size = sum([len(value) for portion in portions for value in portion.values])
            runs = [run for portion in portions if portion.publication.qos for run in portion.runs]
            self.replies.put_after(group, b"", partial(self._publish_failed, runs), size)
        for _, ids, nack in sorted(refused):
            for correlation in ids:
                self._refuse(correlation, nack)

    def _judge(self, prefix: bytes) -> Publication:
        """Look at topic and QoS, in the order that the original has: the same answer for all messages like this."""
        decode = codec.decode_publish if self.version == 1 else codec.decode_publish_v2
        fields = decode(prefix)
        assert fields is not None
        qos, ttl, name, _ = fields
        topic, refusal = self._topic(name, INVALID_PUBLISH)
        if refusal is None and qos not in (0, 1):
            refusal = INVALID_QOS
        limit = min(codec.largest_value(name), self.broker.limits.record_bytes)
        publication = Publication(topic, qos, ttl, limit, refusal)
        if len(self._publications) >= 1024:
            self._publications.clear()  # a client with ever new topics must not fill memory
        self._publications[prefix] = publication
        return publication

    def _topic(self, name: bytes, malformed: Nack) -> tuple[str, Nack | None]:
        try:
            topic = name.decode()
        except UnicodeDecodeError:
            return "", malformed
        if not topic:
            return "", EMPTY_TOPIC
        if self.version == 2 and "\0" in topic:
            return "", NUL_IN_TOPIC
        return topic, None

    def _append(self, portion: Portion) -> CommitGroup:
        broker, publication, values = self.broker, portion.publication, portion.values
        topic = publication.topic
        headers = list(repeat(AT_MOST_ONCE, len(values))) if publication.qos == 0 else None
        expires = None
        if publication.ttl != messages.NO_TTL:
            expires = [max(broker.now() + publication.ttl * 1000, 1)] * len(values)
        broker.topics.ensure(self.identity, SCOPE, topic)
        appended = broker.produce.append(self.identity, SCOPE, topic, PARTITION, values, None, headers, expires=expires)
        self._written = appended.group
        return appended.group

    def _publish_failed(self, runs: list[tuple[int, list[int]]], error: Exception) -> bytes:
        nack = publish_refused(error, self.version)
        return b"".join([codec.encode_nack(correlation, *nack) for _, ids in sorted(runs) for correlation in ids])

    # -- subscribing and taking

    def _subscribe(self, frame: f.Frame) -> None:
        _, correlation, payload = frame
        fields = codec.decode_subscribe(payload)
        topic, refusal = ("", INVALID_SUBSCRIBE) if fields is None else self._topic(fields[0], INVALID_SUBSCRIBE)
        if refusal is None and fields is not None and fields[1] not in (0, 1):
            refusal = INVALID_QOS
        if refusal is not None or fields is None:
            self._refuse(correlation, refusal or INVALID_SUBSCRIBE)
            return
        try:
            queue, group = self.broker.queues.create(self.identity, SCOPE, topic, at_least_once=fields[1] == 1)
        except EXPECTED as error:
            self._refuse(correlation, request_refused(error))
            return
        self._written = group
        self.replies.put_after(group, codec.encode_ack(correlation, queue.id), self.failure([correlation]))
        if self.version == 2:
            self.push(queue.id)

    def _poll_run(self) -> None:
        """All ACKs and POLLs up to the next frame of another kind."""
        frames, start = self._frames, self._next
        end = next((at for at in range(start, len(frames)) if frames[at][0] not in (f.ACK, f.POLL)), len(frames))
        run = PollTask(self, frames if end - start == len(frames) else frames[start:end])
        self._done(end - start)
        run.start()

    def push(self, queue_id: int) -> None:
        """Send the messages of a subscription here, as they come, from now on."""
        existing = self._pushes.get(queue_id)
        if existing is not None and existing.is_current:
            return
        self.end_push(queue_id)  # it went elsewhere meanwhile
        with contextlib.suppress(QueueNotFound, AccessDenied, ShuttingDown):
            self._pushes[queue_id] = Push(self, queue_id)

    def end_push(self, queue_id: int) -> None:
        if (push := self._pushes.pop(queue_id, None)) is not None:
            push.stop()

    # -- replies

    def _refuse(self, correlation: int, nack: Nack) -> None:
        self.replies.put(codec.encode_nack(correlation, *nack))

    def failure(self, ids: list[int]) -> Callable[[Exception], bytes]:
        """What these frames are answered if what they did could not be kept."""

        def failed(error: Exception) -> bytes:
            nack = request_refused(error) if isinstance(error, EXPECTED) else INTERNAL_ERROR
            return b"".join([codec.encode_nack(correlation, *nack) for correlation in ids])

        return failed


DOOR: Final = Door("blipmq", BlipMqSession, f.MAX_FRAME + 4)
