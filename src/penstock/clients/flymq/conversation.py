"""What is said on one connection, without a socket: which frame answers what, and what to do if it does not come.

Replies have no ids and come in the order of the requests. Requests that go out together are an `Exchange`; the
`Conversation` keeps the exchanges that are not answered, oldest first. `Attempts` is about several connections: which
questions are asked again on the next one.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from penstock.clients._core.retry import RetryPolicy
from penstock.clients.flymq.outcome import (
    BadReply,
    ConnectionFailed,
    FlyMqError,
    OutcomeUnknown,
    PipelineError,
    Unsendable,
    refusal,
)
from penstock.clients.flymq.questions import Question
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec import replies, requests
from penstock.wire.flymq.errors import ProtocolError
from penstock.wire.flymq.frames import Frame, Framer, content
from penstock.wire.flymq.opcodes import FLAG_BINARY, MAGIC, MAX_PAYLOAD, VERSION, Op

MAX_WINDOW: Final = 4096  # records in flight; their replies must fit the buffers between here and there
RUN_BYTES: Final = 256 * 1024  # of one write of `produce_many`

_RUN_HEAD: Final = struct.Struct(">BBBBI")
_LENGTH: Final = struct.Struct(">I")
_PARTITION: Final = struct.Struct(">i")
_STORED: Final = struct.Struct(">iQqii")  # what follows the topic in the reply to a PRODUCE


class Exchange:
    """Questions that are asked together, and what has come of them so far: a result or a FlyMqError for each."""

    __slots__ = ("count", "data", "on_end", "outcomes")

    def __init__(self, data: bytes, count: int) -> None:
        self.data = data  # what is to be sent
        self.count = count
        self.outcomes: list[Any] = []
        self.on_end: Callable[[Exception | None], None] | None = None  # told once all is answered, or why it is not

    @property
    def complete(self) -> bool:
        return len(self.outcomes) == self.count

    def read(self, frame: Frame) -> Any:
        """What this frame means as the next answer. Raises BadReply."""
        raise NotImplementedError


class Questions(Exchange):
    """Questions of any kind. Unsendable if one cannot be put into bytes."""

    __slots__ = ("_questions",)

    def __init__(self, questions: Sequence[Question[Any]]) -> None:
        try:
            data = b"".join([requests.encode(question.request) for question in questions])
        except (ValueError, ProtocolError) as error:
            raise Unsendable(str(error)) from error
        super().__init__(data, len(questions))
        self._questions = questions

    def read(self, frame: Frame) -> Any:
        question = self._questions[len(self.outcomes)]
        if frame.opcode == Op.ERROR:
            return _refused(frame)
        if frame.opcode != replies.reply_opcode(question.opcode):
            raise BadReply(f"The server sent opcode 0x{frame.opcode:02X} as the reply to {question.opcode.name}")
        try:
            reply = replies.decode(frame.opcode, content(frame), getattr(question.request, "code_order", False))
        except ProtocolError as error:
            raise BadReply(f"The server sent an unreadable reply to {question.opcode.name}: {error}") from error
        try:
            return question.take(reply)
        except FlyMqError as error:
            return error


class ProduceRun(Exchange):
    """Records of one topic, each as a PRODUCE of its own. The same as `Questions`, but quicker."""

    __slots__ = ("_place", "_topic")

    def __init__(self, topic: str, values: Sequence[bytes], keys: Sequence[bytes | None], partition: int) -> None:
        name = topic_bytes(topic)
        check_partition(partition)
        end = _PARTITION.pack(partition)
        parts: list[bytes] = []
        for value, key in zip(values, keys, strict=True):
            text = key or b""
            size = len(name) + 12 + len(text) + len(value)
            if size > MAX_PAYLOAD:
                raise Unsendable(f"A record of {len(text) + len(value)} bytes does not fit a frame")
            head = _RUN_HEAD.pack(MAGIC, VERSION, Op.PRODUCE, FLAG_BINARY, size)
            parts += (head, name, _LENGTH.pack(len(text)), text, _LENGTH.pack(len(value)), value, end)
        super().__init__(b"".join(parts), len(values))
        self._topic = topic
        self._place = name

    def read(self, frame: Frame) -> Any:
        opcode, _, payload = frame
        if opcode == Op.ERROR:
            return _refused(frame)
        place = self._place
        if opcode != Op.PRODUCE or len(payload) < len(place) + _STORED.size or not payload.startswith(place):
            raise BadReply(f"The server sent an unreadable reply to a PRODUCE to {self._topic!r}")
        return m.RecordMetadata(self._topic, *_STORED.unpack_from(payload, len(place)))


def _refused(frame: Frame) -> FlyMqError:
    try:
        reply = replies.decode(Op.ERROR, content(frame))
    except ProtocolError as error:
        raise BadReply(f"The server sent an unreadable error: {error}") from error
    assert isinstance(reply, m.Failure)
    return refusal(reply.message)


def check_partition(partition: int) -> None:
    if not -(2**31) <= partition < 2**31:
        raise Unsendable(f"There can be no partition {partition}")


def topic_bytes(topic: str) -> bytes:
    """The name as it is sent. Raises Unsendable."""
    try:
        name = topic.encode()
    except UnicodeEncodeError as error:
        raise Unsendable(str(error)) from error
    if len(name) > 0xFFFF:
        raise Unsendable(f"A topic's name of {len(name)} bytes is longer than FlyMQ can carry")
    return len(name).to_bytes(2) + name


class Conversation:
    """The exchanges that wait for their replies on one connection, oldest first."""

    __slots__ = ("_framer", "_waiting")

    def __init__(self) -> None:
        self._framer = Framer(stray=False)
        self._waiting: deque[Exchange] = deque()

    @property
    def idle(self) -> bool:
        """Whether the server owes us nothing."""
        return not self._waiting

    def begin(self, exchange: Exchange) -> None:
        """The exchange is about to be sent."""
        if exchange.count:
            self._waiting.append(exchange)

    def feed(self, data: bytes) -> None:
        """What has come. Raises BadReply, after which nothing on this connection can be relied on."""
        waiting = self._waiting
        for frame in self._framer.feed(data):
            if not waiting:
                raise BadReply("The server sent a reply that nobody asked for")
            exchange = waiting[0]
            exchange.outcomes.append(exchange.read(frame))
            if exchange.complete:
                waiting.popleft()
                if exchange.on_end is not None:
                    exchange.on_end(None)
        if self._framer.error is not None:
            raise BadReply(f"The server sent a bad frame: {self._framer.error}")
        if not waiting and self._framer.buffered:
            raise BadReply("The server sent more than anybody asked for")

    def lose(self, reason: Exception) -> None:
        """No more replies will come."""
        while self._waiting:
            exchange = self._waiting.popleft()
            if exchange.on_end is not None:
                exchange.on_end(reason)


class Attempts:
    """Questions on their way to their outcomes, over as many connections as the retry policy allows.

    What was answered is not asked again. If the connection is lost, what is left is asked again if all of it may be
    carried out twice, and else is `OutcomeUnknown`."""

    def __init__(self, questions: Sequence[Question[Any]], retry: RetryPolicy) -> None:
        self.outcomes: list[Any] = []
        self._questions = questions
        self._retry = retry
        self._failed = 0  # attempts without a single answer, since the last one that had any

    @property
    def over(self) -> bool:
        return len(self.outcomes) == len(self._questions)

    def next(self) -> Questions:
        """What is to be asked now. Raises Unsendable."""
        return Questions(self._questions[len(self.outcomes) :])

    def answered(self, exchange: Exchange) -> None:
        self.outcomes += exchange.outcomes

    def lost(self, exchange: Exchange, error: Exception) -> float:
        """The connection broke. The answer is how many seconds to wait before the next attempt, if it is not over."""
        self._failed = 1 if exchange.outcomes else self._failed + 1
        self.outcomes += exchange.outcomes
        left = self._questions[len(self.outcomes) :]
        failure: FlyMqError
        if isinstance(error, BadReply):
            failure = error
        elif not all(question.repeatable for question in left):
            failure = OutcomeUnknown(f"The connection was lost: {error}")
        elif self._failed < self._retry.attempts:
            return self._retry.delay(self._failed - 1)
        else:
            failure = ConnectionFailed(f"The connection was lost {self._failed} times: {error}")
        failure.__cause__ = error if failure is not error else None
        self.outcomes += [failure] * len(left)
        return 0.0

    def unreachable(self, error: FlyMqError) -> None:
        """There is no connection to ask on. If nothing has been answered, that is all there is to say: it is raised."""
        if not self.outcomes:
            raise error
        self.outcomes += [error] * (len(self._questions) - len(self.outcomes))


# -- many records


def runs(
    topic: str, values: Iterable[bytes], keys: Iterable[bytes | None] | None, partition: int, window: int
) -> Iterator[ProduceRun]:
    """The records in pieces of which two may be in flight."""
    if not 2 <= window <= MAX_WINDOW:
        raise ValueError(f"window must be from 2 to {MAX_WINDOW}")
    waiting = iter(values)
    key_source = None if keys is None else iter(keys)
    while piece := _piece(waiting, window // 2):
        texts: list[bytes | None] = [None] * len(piece)
        if key_source is not None:
            texts = list(islice(key_source, len(piece)))
            if len(texts) < len(piece):
                raise ValueError("as many keys as values are needed")
        yield ProduceRun(topic, piece, texts, partition)


def _piece(values: Iterator[bytes], most: int) -> list[bytes]:
    piece: list[bytes] = []
    size = 0
    for value in values:
        piece.append(value)
        size += len(value)
        if len(piece) == most or size >= RUN_BYTES:
            break
    return piece


class Stored:
    """What has come of the pieces of a `produce_many`."""

    def __init__(self) -> None:
        self._outcomes: list[Any] = []
        self.failed = False

    def take(self, run: Exchange, lost: Exception | None = None) -> None:
        """A piece is over; `lost`: the connection broke before the rest of its replies."""
        outcomes = list(run.outcomes)
        if lost is not None:
            unknown = OutcomeUnknown(f"The connection was lost: {lost}")
            unknown.__cause__ = lost
            outcomes += [unknown] * (run.count - len(outcomes))
        self.failed = self.failed or any(isinstance(outcome, FlyMqError) for outcome in outcomes)
        self._outcomes += outcomes

    def results(self) -> list[m.RecordMetadata]:
        if self.failed:
            raise PipelineError(self._outcomes)
        return self._outcomes


def result_of(outcomes: Sequence[Any]) -> Any:
    """The only outcome, if it is a result."""
    (outcome,) = outcomes
    if isinstance(outcome, FlyMqError):
        raise outcome
    return outcome


def results_of(outcomes: Sequence[Any]) -> Sequence[Any]:
    """The outcomes, if all are results."""
    for outcome in outcomes:
        if isinstance(outcome, FlyMqError):
            raise outcome
    return outcomes
