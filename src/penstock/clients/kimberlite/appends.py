"""Appends of several steps, as procedures of both clients: after a request for the stream's length, and pipelined."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, Unpack

from penstock.clients._core.connection import Connection
from penstock.clients._core.errors import PenstockError
from penstock.clients._core.procedure import CONNECTED, Drain, Procedure, Wait
from penstock.clients._core.requests import RequestBatch, result_of
from penstock.clients.kimberlite import requests as r
from penstock.clients.kimberlite.binding import KimberliteRequests
from penstock.clients.kimberlite.errors import FAMILY, PipelineError
from penstock.clients.kimberlite.requests import RequestOptions, RequestSpec
from penstock.clients.kimberlite.results import Appended

WRITE_SIZE: Final = 64 * 1024  # small requests of a pipeline are combined into writes of about this many bytes


def append(
    _client: object,
    stream_id: int,
    events: Sequence[bytes],
    expected_offset: int | None = None,
    **options: Unpack[RequestOptions],
) -> Procedure[Appended]:
    """Store events, all or none; the result has their offsets. With `expected_offset` only if the stream ends there,
    and otherwise raises `OffsetMismatch`: optimistic concurrency control for several writers. Without it, if the
    version of the protocol requires one, the length of the stream is requested first."""
    start = yield from _stream_end(stream_id, expected_offset, options)
    (outcome,) = yield [r.append(stream_id, events, start, **options)]
    return result_of(outcome)  # type: ignore[no-any-return]


def append_many(
    _client: object,
    stream_id: int,
    batches: Iterable[Sequence[bytes]],
    expected_offset: int | None = None,
    *,
    window: int = 64,
    window_bytes: int = 8 * 1024 * 1024,
    **options: Unpack[RequestOptions],
) -> Procedure[list[Appended]]:
    """Store batches independently, without waiting for each reply; at most `window` of them or `window_bytes` are in
    flight. Stops at the first failure; PipelineError then has the outcome of each batch that was sent, including those
    in flight behind the failure. `expected_offset` is as in `append`, for the first batch."""
    if window < 1 or window_bytes < 1:
        raise ValueError("the window must be at least 1")
    start = yield from _stream_end(stream_id, expected_offset, options)
    connection: Connection = yield CONNECTED
    pipeline = _Pipeline(connection, window, window_bytes)
    try:
        for events in batches:
            pipeline.begin(r.append(stream_id, events, start, **options))
            while (oldest := pipeline.oldest()) is not None and pipeline.full and not pipeline.failed:
                pipeline.flush()
                yield Wait(connection, oldest)
            if pipeline.failed:
                break
            if start is not None:
                start += len(events)
            if connection.congested:
                yield Drain(connection)
    finally:
        pipeline.flush()  # also if the caller's iterator failed: a request that was begun counts as sent
    while (oldest := pipeline.oldest()) is not None:
        yield Wait(connection, oldest)
    return pipeline.results()


def _stream_end(stream_id: int, expected_offset: int | None, options: RequestOptions) -> Procedure[int | None]:
    """The offset that an append must expect, or None if the version needs none."""
    if expected_offset is None:
        connection: Connection = yield CONNECTED
        assert isinstance(connection.requests, KimberliteRequests)
        if connection.requests.version.has_stream_info:
            (outcome,) = yield [r.stream_info(stream_id, **options)]
            return result_of(outcome)  # type: ignore[no-any-return]
    return expected_offset


class _Pipeline:
    """Requests sent one after the other on one connection, without waiting for each reply."""

    def __init__(self, connection: Connection, window: int, window_bytes: int) -> None:
        self._connection = connection
        self._window = window
        self._window_bytes = window_bytes
        self._batches: list[RequestBatch] = []  # of one request each
        self._in_flight: deque[RequestBatch] = deque()
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self.failed = False

    def begin(self, spec: RequestSpec[Any]) -> None:
        connection, batch = self._connection, RequestBatch((spec,))
        self._batches.append(batch)
        if connection.lost is not None:
            batch.lose(connection.lost)
        else:
            self._outgoing.append(connection.requests.begin(batch, time.monotonic()))
            self._outgoing_bytes += batch.size
            if self._outgoing_bytes >= WRITE_SIZE:
                self.flush()
        if batch.is_set:  # as Unsendable, or lost
            self.failed = True
        else:
            self._in_flight.append(batch)

    @property
    def full(self) -> bool:
        requests = self._connection.requests
        return len(requests) >= self._window or requests.bytes_in_flight >= self._window_bytes

    def flush(self) -> None:
        if self._outgoing:
            self._connection.write(b"".join(self._outgoing))
            self._outgoing.clear()
            self._outgoing_bytes = 0

    def oldest(self) -> RequestBatch | None:
        """The first request without an outcome."""
        in_flight = self._in_flight
        while in_flight and in_flight[0].is_set:
            batch = in_flight.popleft()
            self.failed |= batch.lost is not None or isinstance(batch.outcomes[0], PenstockError)
        return in_flight[0] if in_flight else None

    def results(self) -> list[Appended]:
        """The results. Raises PipelineError if a request failed."""
        outcomes = [_outcome(batch) for batch in self._batches]
        if self.failed:
            raise PipelineError(outcomes)
        return outcomes


def _outcome(batch: RequestBatch) -> Any:
    """The outcome of a request that is not retried."""
    if batch.lost is None:
        return batch.outcomes[0]
    return batch.lost if isinstance(batch.lost, PenstockError) else FAMILY.unknown(batch.lost)
