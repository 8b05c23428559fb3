"""One FlyMQ connection: parses frames into requests of the pipeline, and encodes replies and errors as frames.

Requests have no id, so replies are sent strictly in the order of requests. Writes do not wait for the commits of
earlier ones; their replies do. Adjacent PRODUCE frames to one topic are appended together
(`wire/flymq/codec/coalesced_produce`). The handler of each opcode is in `handlers/table`. FlyMQ has no handshake: a
connection is anonymous until a login changes its identity, so it has no states besides the common ones
(`doors/session`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.errors import TopicNotFound
from penstock.broker.security.access import Identity
from penstock.doors.flymq.errors import EXPECTED, text_of
from penstock.doors.flymq.handlers.records import append, produce
from penstock.doors.flymq.handlers.table import HANDLERS
from penstock.doors.flymq.request_context import FlyMqContext, FlyMqSettings
from penstock.doors.flymq.unpacking import UnpackingQueue, UnpackingTask
from penstock.doors.handlers import Handler
from penstock.doors.login_allowance import login_allowance
from penstock.doors.pipeline import RequestPipeline
from penstock.doors.reply import Outcome, Reply
from penstock.doors.reply_queue import OnFailure
from penstock.doors.session import Channel, Door
from penstock.log.engine import CommitGroup
from penstock.wire.flymq.codec import replies, requests
from penstock.wire.flymq.codec.coalesced_produce import CoalescedProduce, coalesce_produce
from penstock.wire.flymq.codec.single_produce import SingleProduce, SingleProduceDecoder
from penstock.wire.flymq.errors import UnknownOpcode, error_frame
from penstock.wire.flymq.frames import CoalescingFramer, Frame, Inflation, is_compressed
from penstock.wire.flymq.messages import NO_KEY
from penstock.wire.flymq.opcodes import HEADER_SIZE, MAX_PAYLOAD, Op

BATCH_BYTES: Final = 1 << 20  # of PRODUCE frames that are appended together
FIRST_STEP: Final = 128 << 10  # bytes of a compressed payload that are decompressed synchronously
MAX_LOGIN: Final = 64 << 10  # bytes of the decompressed payload, before login
FRAME_BYTES: Final = 100  # memory of a frame besides its payload, which is usually tiny
_PRODUCE: Final = HANDLERS[Op.PRODUCE]
_coalesce: Final = partial(coalesce_produce, max_bytes=BATCH_BYTES)


class FlyMqRequest:
    """One frame in the pipeline."""

    __slots__ = ("body", "frame", "opcode", "size")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.opcode = frame.opcode
        self.size = len(frame.payload)
        self.body: Any = None  # the decoded request


class FlyMqSession(RequestPipeline):
    door: str = "flymq"
    expected: tuple[type[Exception], ...] = EXPECTED

    def __init__(
        self,
        broker: Broker,
        channel: Channel,
        identity: Identity,
        settings: FlyMqSettings,
        unpacking: UnpackingQueue | None = None,
    ) -> None:
        super().__init__(broker, channel)
        self._unpacking = UnpackingQueue() if unpacking is None else unpacking
        self._context = FlyMqContext(broker, identity, channel.peer, settings)
        self._allowance = login_allowance(broker, identity)
        self._turn.unauthenticated = broker.access.enforced
        self._framer = CoalescingFramer(coalesce=_coalesce)
        self._single = SingleProduceDecoder()
        self._single_failed: OnFailure = self._encode_failure  # bound once
        self._frames: list[Frame | CoalescedProduce] = []  # not executed yet, from index `_next` on
        self._next = 0
        self._held = 0  # memory of those frames, in bytes

    @property
    def long_lived(self) -> bool:
        return not (self._context.anonymous and self.broker.access.enforced)

    # -- requests

    def _sole_request(self, data: bytes) -> SingleProduce | None:
        if self._next != len(self._frames) or not self._framer.between_frames:
            return None
        return self._single.decode(data)

    def feed(self, data: bytes) -> None:
        frames = self._framer.feed(data)
        if self._framer.error is not None:
            self.end_input()  # closed without an error reply, after earlier requests are answered
        if frames:
            self._frames = frames if self._next == len(self._frames) else self._frames[self._next :] + frames
            self._next = 0
            for frame in frames:
                self._held += _weight(frame)

    def _peek(self) -> FlyMqRequest | CoalescedProduce | None:
        if self._next == len(self._frames):
            return None
        frame = self._frames[self._next]
        return FlyMqRequest(frame) if isinstance(frame, Frame) else frame

    def _handler(self, request: FlyMqRequest | CoalescedProduce | SingleProduce) -> Handler | None:
        return HANDLERS.get(request.opcode) if isinstance(request, FlyMqRequest) else _PRODUCE

    def _invoke(
        self, handler: Handler | None, request: FlyMqRequest | CoalescedProduce | SingleProduce
    ) -> Outcome | None:
        if isinstance(request, SingleProduce):
            return self._append_single(request)
        self._next += 1
        if isinstance(request, CoalescedProduce):
            self._held -= _weight(request)
            return self._append(request)
        self._held -= _weight(request.frame)
        if handler is None:
            raise UnknownOpcode(request.opcode)
        if is_compressed(request.frame):
            return self._unpack(handler, request)
        return self._carry_out(handler, request, request.frame.payload)

    def _carry_out(self, handler: Handler, request: FlyMqRequest, payload: bytes) -> Outcome | None:
        request.body = requests.decode(request.opcode, payload)
        return handler.function(self._context, request.body)

    def _unpack(self, handler: Handler, request: FlyMqRequest) -> Outcome | None:
        """Decompress a payload, after checking that the client has the permission for such a request on any topic at
        all: the topic is known only afterwards. Before login the limit is small."""
        context, limit = self._context, MAX_PAYLOAD
        if handler.permission is not None:
            context.broker.access.require_any(context.identity, handler.permission, context.scope)
        elif context.anonymous and context.broker.access.enforced:
            limit = MAX_LOGIN
        inflation = Inflation(request.frame.payload, limit)
        if inflation.step(FIRST_STEP):
            return self._carry_out(handler, request, inflation.content())
        execute = partial(self._carry_out, handler, request)
        return UnpackingTask(self._unpacking, self._turns, self, inflation, execute)

    def _append_single(self, request: SingleProduce) -> Reply | None:
        """Append the record of a frame that arrived alone. A topic that does not exist yet, or has a schema, takes the
        same way as a batch."""
        context, topic, value = self._context, request.topic, request.value
        try:
            group, partition, offset, timestamp = context.broker.produce.append_record(
                context.identity, context.scope, topic, value, request.partition
            )
        except TopicNotFound:
            group = None
        if group is None:
            return self._append(request.coalesced())
        data = replies.encode_metadata(topic, partition, offset, timestamp // 1000, NO_KEY, len(value))
        self.replies.enqueue(data, group, self._single_failed, request.byte_size)
        return None

    def _append(self, batch: CoalescedProduce) -> Reply | None:
        """Append all records of a batch together; if that is refused, one by one."""
        try:
            produced = append(
                self._context, batch.topic, batch.values, batch.keys, batch.partitions, allow_dead_letters=False
            )
        except EXPECTED:
            if batch.count == 1:
                return produce(self._context, batch.request())
            alone = batch.split()  # at least one record is invalid: each gets its own reply
            self._frames[self._next : self._next] = alone
            self._held += sum(map(_weight, alone))
            return None
        if batch.keys is None and len(batch.values) == 1:
            data = replies.encode_metadata(
                batch.topic, produced.partitions[0], produced.offsets[0], produced.timestamp // 1000, NO_KEY,
                len(batch.values[0]),
            )  # fmt: skip
            return Reply(data, produced.group)
        return Reply(_encode_batch(batch, produced.partitions, produced.offsets, produced.timestamp), produced.group)

    def _logged_in(self) -> bool:
        return not self._context.anonymous

    @property
    def _drained(self) -> bool:
        return self._next == len(self._frames)

    @property
    def _input_bytes(self) -> int:
        return self._framer.buffered + self._held

    def _discard_input(self) -> None:
        self._framer = CoalescingFramer(coalesce=_coalesce)
        self._frames.clear()
        self._next = self._held = 0

    def _release(self) -> None:
        self._context.release()

    # -- replies

    def _encode(self, request: FlyMqRequest | CoalescedProduce | SingleProduce, message: Any) -> bytes:
        return replies.encode(request.opcode if isinstance(request, FlyMqRequest) else Op.PRODUCE, message)

    def _encode_error(self, request: FlyMqRequest | CoalescedProduce | SingleProduce, error: Exception) -> bytes:
        if isinstance(request, FlyMqRequest):
            return error_frame(text_of(error, request.body, self._context))
        frame = self._encode_failure(error)
        return frame * request.count if isinstance(request, CoalescedProduce) else frame

    def _encode_failure(self, error: Exception) -> bytes:
        """The error reply to one PRODUCE."""
        return error_frame(text_of(error, None, self._context))

    def _enqueue(
        self, request: FlyMqRequest | CoalescedProduce | SingleProduce, data: bytes, after: CommitGroup | None
    ) -> None:
        size = request.size if isinstance(request, FlyMqRequest) else request.byte_size
        self.replies.enqueue(data, after, None if after is None else partial(self._encode_error, request), size)


def _weight(frame: Frame | CoalescedProduce) -> int:
    """The approximate memory, in bytes."""
    if isinstance(frame, CoalescedProduce):
        return frame.byte_size + len(frame.values) * FRAME_BYTES
    return len(frame.payload) + FRAME_BYTES


def _encode_batch(batch: CoalescedProduce, partitions: Sequence[int], offsets: Sequence[int], timestamp: int) -> bytes:
    keys: Iterable[int] = repeat(NO_KEY)
    if batch.keys is not None:
        keys = [NO_KEY if key is None else len(key) for key in batch.keys]
    return replies.encode_metadata_batch(
        batch.topic, partitions, offsets, timestamp // 1000, keys, map(len, batch.values)
    )


def flymq_door(settings: FlyMqSettings) -> Door:
    unpacking = UnpackingQueue()

    def opened(broker: Broker, channel: Channel, identity: Identity) -> FlyMqSession:
        return FlyMqSession(broker, channel, identity, settings, unpacking)

    return Door("flymq", opened, MAX_PAYLOAD + HEADER_SIZE)
