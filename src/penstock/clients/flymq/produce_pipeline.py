"""`produce_many`: many records, each as its own PRODUCE, without waiting for each reply.

The records are sent in batches, two of which are in flight. Batches have faster encoding and decoding than single
requests.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from penstock.clients._core.connection import Connection
from penstock.clients._core.procedure import CONNECTED, Drain, Procedure, Wait
from penstock.clients._core.requests import RequestBatch
from penstock.clients.flymq.binding import refusal
from penstock.clients.flymq.errors import FAMILY, BadReply, FlyMqError, PipelineError, Unsendable
from penstock.clients.flymq.requests import ANY
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.frames import Frame
from penstock.wire.flymq.opcodes import FLAG_BINARY, MAGIC, MAX_PAYLOAD, VERSION, Op

MAX_WINDOW: Final = 4096  # records in flight; their replies must fit into the buffers between both sides
BATCH_BYTES: Final = 256 * 1024  # of the values in one batch

_HEADER: Final = struct.Struct(">BBBBI")
_LENGTH: Final = struct.Struct(">I")
_PARTITION: Final = struct.Struct(">i")
_STORED: Final = struct.Struct(">iQqii")  # follows the topic in the reply to a PRODUCE


class ProduceBatch(RequestBatch):
    """Records of one topic, each as its own PRODUCE."""

    __slots__ = ("_prefix", "_topic")

    def __init__(self, topic: str, values: Sequence[bytes], keys: Sequence[bytes | None], partition: int) -> None:
        name = encoded_topic(topic)
        check_partition(partition)
        end = _PARTITION.pack(partition)
        parts: list[bytes] = []
        for value, key in zip(values, keys, strict=True):
            text = key or b""
            size = len(name) + 12 + len(text) + len(value)
            if size > MAX_PAYLOAD:
                raise Unsendable(f"A record of {len(text) + len(value)} bytes does not fit a frame")
            head = _HEADER.pack(MAGIC, VERSION, Op.PRODUCE, FLAG_BINARY, size)
            parts += (head, name, _LENGTH.pack(len(text)), text, _LENGTH.pack(len(value)), value, end)
        super().__init__((), b"".join(parts), len(values))
        self._topic = topic
        self._prefix = name

    def decode(self, _at: int, frame: Frame, _message: Any) -> Any:
        opcode, _, payload = frame
        if opcode == Op.ERROR:
            return refusal(frame)
        prefix = self._prefix
        if opcode != Op.PRODUCE or len(payload) < len(prefix) + _STORED.size or not payload.startswith(prefix):
            raise BadReply(f"The server sent an unreadable reply to a PRODUCE to {self._topic!r}")
        return m.RecordMetadata(self._topic, *_STORED.unpack_from(payload, len(prefix)))


def encoded_topic(topic: str) -> bytes:
    """The encoded name. Raises Unsendable."""
    try:
        name = topic.encode()
    except UnicodeEncodeError as error:
        raise Unsendable(str(error)) from error
    if len(name) > 0xFFFF:
        raise Unsendable(f"A topic's name of {len(name)} bytes is longer than FlyMQ can carry")
    return len(name).to_bytes(2) + name


def check_partition(partition: int) -> None:
    if not -(2**31) <= partition < 2**31:
        raise Unsendable(f"There can be no partition {partition}")


class _Pipeline:
    """The batches of one `produce_many`: those in flight, all on one connection, and the outcomes of the others."""

    def __init__(self) -> None:
        self.in_flight: deque[ProduceBatch] = deque()
        self.connection: Connection | None = None
        self.failed = False
        self._outcomes: list[Any] = []

    def send(self, batch: ProduceBatch) -> Procedure[None]:
        """Send on the connection of the batches in flight, to preserve the order of records; on a new one if that is
        lost and no batch failed with it. Sends nothing after a failure."""
        if self.in_flight:
            assert self.connection is not None
            yield Drain(self.connection)
            if self.connection.lost is not None:
                yield from self.finish()
        if self.failed:
            return
        if not self.in_flight:
            self.connection = yield CONNECTED
        assert self.connection is not None
        self.connection.send(batch)
        self.in_flight.append(batch)
        yield from self.finish(at_most=1)

    def finish(self, at_most: int = 0) -> Procedure[None]:
        """Wait until at most `at_most` batches are in flight."""
        while len(self.in_flight) > at_most:
            batch = self.in_flight.popleft()
            assert self.connection is not None
            if not batch.is_set:
                yield Wait(self.connection, batch)
            outcomes = batch.settled(FAMILY.unknown)
            self.failed = self.failed or any(isinstance(outcome, FlyMqError) for outcome in outcomes)
            self._outcomes += outcomes

    def results(self) -> list[m.RecordMetadata]:
        if self.failed:
            raise PipelineError(self._outcomes)
        return self._outcomes


def produce_many(
    _client: object,
    topic: str,
    values: Iterable[bytes],
    keys: Iterable[bytes | None] | None = None,
    partition: int = ANY,
    *,
    window: int = 1024,
) -> Procedure[list[m.RecordMetadata]]:
    """Store records independently, without waiting for each reply; at most `window` of them are in flight. Stops at the
    first failure; PipelineError then has the outcome of each record that was sent."""
    pipeline = _Pipeline()
    for batch in _batches(topic, values, keys, partition, window):
        yield from pipeline.send(batch)
        if pipeline.failed:
            break
    yield from pipeline.finish()
    return pipeline.results()


def _batches(
    topic: str, values: Iterable[bytes], keys: Iterable[bytes | None] | None, partition: int, window: int
) -> Iterator[ProduceBatch]:
    """The records in batches, sized so that two of them fill the window."""
    if not 2 <= window <= MAX_WINDOW:
        raise ValueError(f"window must be from 2 to {MAX_WINDOW}")
    remaining = iter(values)
    remaining_keys = None if keys is None else iter(keys)
    while piece := _piece(remaining, window // 2):
        piece_keys: list[bytes | None] = [None] * len(piece)
        if remaining_keys is not None:
            piece_keys = list(islice(remaining_keys, len(piece)))
            if len(piece_keys) < len(piece):
                raise ValueError("as many keys as values are needed")
        yield ProduceBatch(topic, piece, piece_keys, partition)


def _piece(values: Iterator[bytes], limit: int) -> list[bytes]:
    piece: list[bytes] = []
    size = 0
    for value in values:
        piece.append(value)
        size += len(value)
        if len(piece) == limit or size >= BATCH_BYTES:
            break
    return piece
