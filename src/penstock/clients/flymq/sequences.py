"""Numbers of an idempotent producer's batches, and what becomes of them when something fails. No input or output.

Batches of one topic are numbered without a gap. One whose outcome is not known keeps its number, so that the server
stores it once however often it is sent; one that was refused for good leaves a gap, behind which a new epoch begins.
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

IN_FLIGHT: Final = 5  # batches of a topic: as many of a producer's last ones as the server knows again
Settle: TypeAlias = Callable[[Sequence[Batch], Sequence[Any]], None]
_PASSING: Final = (ConnectionFailed, OutcomeUnknown, ServerFailed)


class Number(NamedTuple):
    epoch: int
    sequence: int


class Sequences:
    """The numbers of one producer, by topic. `timeout` is for how many seconds a batch is tried."""

    def __init__(self, timeout: float) -> None:
        self.producer = secrets.token_hex(16)
        self.timeout = timeout
        self._next: dict[str, Number] = {}
        self._numbers: dict[Batch, Number] = {}  # of batches without an outcome

    def number(self, batch: Batch) -> Number:
        """The number of a batch, which it keeps until it has an outcome."""
        number = self._numbers.get(batch)
        if number is None:
            number = self._numbers[batch] = self._next.get(batch.topic, Number(0, 0))
            self._next[batch.topic] = Number(number.epoch, number.sequence + 1)
        return number

    def judge(self, batches: Sequence[Batch], outcomes: Sequence[Any], now: float) -> list[tuple[Batch, Any]]:
        """The batches that are settled, with their outcomes. All others are to be sent again, in their order."""
        settled: list[tuple[Batch, Any]] = []
        delayed: set[str] = set()  # topics of which a batch is sent again: those behind it could only be out of order
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
    """Send batches until each is stored or refused, or its time is up; `settle` is called with those that are, and with
    their outcomes, whatever happens. `delay` is for how many seconds to wait after so many failures."""
    left = list(batches)
    failures = 0
    try:
        while left:
            some = left[:IN_FLIGHT]
            requests = [batch.numbered_request(sequences.producer, *sequences.number(batch)) for batch in some]
            try:
                outcomes: Sequence[Any] = yield requests
            except Exception as error:  # noqa: BLE001 - nobody above would see it
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
    """Mostly there is no connection. Anything but a FlyMqError is a record that does not consist of bytes."""
    if isinstance(error, FlyMqError):
        return error
    failure = Unsendable(f"The batch cannot be sent: {error!r}")
    failure.__cause__ = error
    return failure
