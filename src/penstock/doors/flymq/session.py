"""One FlyMQ connection: frames in, operations, frames out.

Requests have no id, so replies go out strictly in the order of requests. Writes do not wait for each other's commits:
their replies do. Neighbouring PRODUCE frames to one topic are stored as one (`coalesced_produce.py`). What each opcode
does is in `operations`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity
from penstock.doors.flymq.errors import EXPECTED, text_of
from penstock.doors.flymq.handlers.records import produce, scatter
from penstock.doors.flymq.handlers.table import OPERATIONS
from penstock.doors.flymq.request_context import FlyMqSettings, RequestContext
from penstock.doors.pipeline import RequestPipeline
from penstock.doors.reply import PendingReply, Reply
from penstock.doors.session import Channel, Door
from penstock.wire.flymq.codec import replies, requests
from penstock.wire.flymq.codec.coalesced_produce import CoalescedProduce, coalesce_produce
from penstock.wire.flymq.errors import UnknownOpcode, error_frame
from penstock.wire.flymq.frames import CoalescingFramer, Frame, content
from penstock.wire.flymq.messages import NO_KEY, Produce
from penstock.wire.flymq.opcodes import HEADER_SIZE, MAX_PAYLOAD, Op

logger = logging.getLogger(__name__)

RUN_BYTES: Final = 1 << 20  # most bytes of requests that are appended as one
FRAME_BYTES: Final = 100  # what a frame takes besides its payload: most requests have next to none


class FlyMqSession(RequestPipeline):
    def __init__(self, broker: Broker, channel: Channel, identity: Identity, settings: FlyMqSettings) -> None:
        super().__init__(broker, channel, identity)
        self._call = RequestContext(broker, identity, channel.peer, settings)
        self._framer = CoalescingFramer(coalesce=_run)
        self._frames: list[Frame | CoalescedProduce] = []  # not carried out yet, from `_next` on
        self._next = 0
        self._held = 0  # bytes that those frames take
        self._later: PendingReply | None = None  # the answer to the last request that was carried out is still to come

    # -- what `RequestPipeline` asks

    def _take(self, data: bytes) -> None:
        frames = self._framer.feed(data)
        if self._framer.error is not None:
            self._listening = False  # closed without a word, once what came before is answered
        if frames:
            del self._frames[: self._next]
            self._next = 0
            self._frames += frames
            self._held += sum(map(_weight, frames))

    @property
    def _idle(self) -> bool:
        return self._next == len(self._frames) and self._later is None

    @property
    def _held_input(self) -> int:
        return self._framer.buffered + self._held

    def _forget(self) -> None:
        self._framer = CoalescingFramer(coalesce=_run)
        self._frames.clear()
        self._next = self._held = 0
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._call.forget()

    def _carry_out(self) -> None:
        while self._later is None and self._next < len(self._frames):
            frame = self._frames[self._next]
            if isinstance(frame, CoalescedProduce):
                if self._must_wait(reads=False):
                    return
                self._store(frame)
                continue
            operation = OPERATIONS.get(frame.opcode)
            if self._must_wait(reads=operation is not None and operation.reads):
                return
            self._pop(frame)
            self._carry_out_one(frame)

    def _pop(self, frame: Frame | CoalescedProduce) -> None:
        self._held -= _weight(frame)
        self._next += 1

    # -- one request

    def _carry_out_one(self, frame: Frame) -> None:
        opcode, size = frame.opcode, len(frame.payload)
        request: Any = None
        try:
            operation = OPERATIONS.get(opcode)
            if operation is None:
                raise UnknownOpcode(opcode)
            request = requests.decode(opcode, content(frame))
            outcome = operation.carry_out(self._call, request)
        except Exception as error:  # noqa: BLE001 - `_refuse` logs what was not expected
            self._refuse(error, request)
            return
        if isinstance(outcome, Reply):
            self._answer(opcode, request, size, outcome)
        else:
            self._later = outcome
            outcome.start(partial(self._came, opcode, request, size))

    def _came(self, opcode: int, request: Any, size: int, outcome: Reply | Exception) -> None:
        """The answer of a `PendingReply` is there."""
        if self._closed:
            return
        self._later = None
        if isinstance(outcome, Reply):
            self._answer(opcode, request, size, outcome)
        else:
            self._refuse(outcome, request)
        if not self._working:
            self.progress()

    def _answer(self, opcode: int, request: Any, size: int, answer: Reply) -> None:
        reply, group = answer
        try:
            data = reply if isinstance(reply, bytes) else replies.encode(opcode, reply)
        except EXPECTED as error:  # it does not fit a frame
            data = error_frame(text_of(error, request, self._call))
        after = self.broker.pending_commit if group is None else group
        self.replies.put_after(after, data, self._failure(request), size)

    def _refuse(self, error: Exception, request: Any) -> None:
        if not isinstance(error, EXPECTED):
            logger.error("a request of %s failed", self.channel.peer, exc_info=error)
        data = error_frame(text_of(error, request, self._call))
        self.replies.put_after(self.broker.pending_commit, data, self._failure(request))
        if not isinstance(error, EXPECTED):
            self._finish()

    def _failure(self, request: Any, count: int = 1) -> Callable[[Exception], bytes]:
        """What is said instead if what the answer depends on could not be kept."""
        return lambda error: error_frame(text_of(error, request, self._call)) * count

    # -- runs of PRODUCE

    def _store(self, run: CoalescedProduce) -> None:
        """Append all records of a run as one: if that is refused, each of them alone."""
        try:
            scattered = scatter(self._call, run.topic, run.values, run.keys, run.partitions, allow_dead_letters=False)
        except EXPECTED:
            if run.count > 1:  # one of them is at fault, or all are: each gets its own answer
                self._frames[self._next : self._next + 1] = run.split()
            else:
                self._pop(run)
                self._store_alone(run.request(), run.byte_size)
            return
        self._pop(run)
        data = _encode_run(run, scattered.partitions, scattered.offsets, scattered.timestamp)
        self.replies.put_after(scattered.group, data, self._failure(None, run.count), run.byte_size)

    def _store_alone(self, request: Produce, size: int) -> None:
        try:
            answer = produce(self._call, request)
        except Exception as error:  # noqa: BLE001 - `_refuse` logs what was not expected
            self._refuse(error, request)
        else:
            self._answer(Op.PRODUCE, request, size, answer)


def _run(data: bytes, start: int) -> CoalescedProduce | None:
    return coalesce_produce(data, start, RUN_BYTES)


def _weight(frame: Frame | CoalescedProduce) -> int:
    """Bytes of memory that it takes, roughly."""
    if isinstance(frame, CoalescedProduce):
        return frame.byte_size + frame.count * FRAME_BYTES
    return len(frame.payload) + FRAME_BYTES


def _encode_run(run: CoalescedProduce, partitions: Sequence[int], offsets: Sequence[int], timestamp: int) -> bytes:
    keys: Iterable[int] = repeat(NO_KEY)
    if run.keys is not None:
        keys = [NO_KEY if key is None else len(key) for key in run.keys]
    return replies.encode_metadata_batch(run.topic, partitions, offsets, timestamp // 1000, keys, map(len, run.values))


def flymq_door(settings: FlyMqSettings) -> Door:
    def opened(broker: Broker, channel: Channel, identity: Identity) -> FlyMqSession:
        return FlyMqSession(broker, channel, identity, settings)

    return Door("flymq", opened, MAX_PAYLOAD + HEADER_SIZE)
