"""Sequence numbers of an idempotent producer's batches, and their handling after failures. No I/O.

Batches of one topic are numbered without gaps. A batch with an unknown outcome keeps its number, so the server stores
it once however often it is sent; a permanently refused one leaves a gap, after which a new epoch begins.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.clients._core.procedure import Procedure
from penstock.clients.flymq.batches import Batch
from penstock.clients.flymq.errors import (
    ConnectionFailed,
    FlyMqError,
    OutcomeUnknown,
    OutOfOrder,
    ServerFailed,
    Unsendable,
)

IN_FLIGHT: Final = 5  # batches per topic: as many as the server remembers per producer for deduplication
Settle: TypeAlias = Callable[[Sequence[Batch], Sequence[Any]], None]
_PASSING: Final = (ConnectionFailed, OutcomeUnknown, ServerFailed)


class Number(NamedTuple):
    epoch: int
    sequence: int


class Sequences:
    """The sequence numbers of one producer, by topic. `timeout` is how many seconds a batch is retried."""

    def __init__(self, timeout: float) -> None:
        self.producer = secrets.token_hex(16)
        self.timeout = timeout
        self._next: dict[str, Number] = {}
        self._numbers: dict[Batch, Number] = {}  # of batches without an outcome

    def number(self, batch: Batch) -> Number:
        """The number of a batch, kept until it has an outcome."""
        number = self._numbers.get(batch)
        if number is None:
            number = self._numbers[batch] = self._next.get(batch.topic, Number(0, 0))
            self._next[batch.topic] = Number(number.epoch, number.sequence + 1)
        return number

    def judge(self, batches: Sequence[Batch], outcomes: Sequence[Any], now: float) -> list[tuple[Batch, Any]]:
        """The batches with a final outcome. All others must be sent again, in order."""
        settled: list[tuple[Batch, Any]] = []
        delayed: set[str] = set()  # topics with a batch to retry: the ones behind it can only be out of order
        restarted: set[str] = set()  # topics with a batch that was given up
        for batch, outcome in zip(batches, outcomes, strict=True):
            topic = batch.topic
            if isinstance(outcome, OutOfOrder) and topic in delayed | restarted:
                if topic in restarted:
                    del self._numbers[batch]
                continue
            if isinstance(outcome, _PASSING) and now < batch.created + self.timeout:
                delayed.add(topic)
                continue
            if isinstance(outcome, FlyMqError):
                restarted.add(topic)
                self._next[topic] = Number(self._numbers[batch].epoch + 1, 0)
                outcome = _given_up(outcome)
            del self._numbers[batch]
            settled.append((batch, outcome))
        return settled


def _given_up(error: FlyMqError) -> FlyMqError:
    if not isinstance(error, ConnectionFailed):
        return error
    unknown = OutcomeUnknown(f"It was sent until its time was up, and may be stored: {error}")
    unknown.__cause__ = error
    return unknown


def send_once(
    batches: Sequence[Batch], sequences: Sequences, delay: Callable[[int], float], settle: Settle
) -> Procedure[None]:
    """Send batches until each is stored, refused or timed out; `settle` is called with the outcomes in any case.
    `delay` returns the seconds to wait after a number of failures."""
    left = list(batches)
    failures = 0
    try:
        while left:
            some = left[:IN_FLIGHT]
            requests = [batch.numbered_request(sequences.producer, *sequences.number(batch)) for batch in some]
            try:
                outcomes: Sequence[Any] = yield requests
            except Exception as error:  # noqa: BLE001 - no caller would see it
                outcomes = [batch_failure(error)] * len(some)
            settled = sequences.judge(some, outcomes, time.monotonic())
            settle([batch for batch, _ in settled], [outcome for _, outcome in settled])
            done = {batch for batch, _ in settled}
            left = [batch for batch in left if batch not in done]
            failures = 0 if settled else failures + 1
            if failures:
                yield delay(failures - 1)
    except BaseException:
        settle(left, [OutcomeUnknown("The producer was interrupted")] * len(left))
        raise


def batch_failure(error: Exception) -> FlyMqError:
    """The outcome for an exception: usually a lost connection. Anything but a FlyMqError means a record that is not
    bytes."""
    if isinstance(error, FlyMqError):
        return error
    failure = Unsendable(f"The batch cannot be sent: {error!r}")
    failure.__cause__ = error
    return failure
