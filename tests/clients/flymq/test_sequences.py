"""Numbers of an idempotent producer: which batch has which, and what happens to them when something fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.clients._core.signal import Signal
from penstock.clients.flymq.batches import Batch
from penstock.clients.flymq.errors import (
    ConnectionFailed,
    NotFound,
    OutcomeUnknown,
    OutOfOrder,
    ReplyError,
    ServerFailed,
    WriteDoubtful,
)
from penstock.clients.flymq.sequences import Sequences, send_once
from penstock.wire.flymq import messages as m

STORED = m.ProducedBatch("t", 0, [0], [0])


def batch(topic: str = "t", created: float = 0.0) -> Batch:
    made = Batch(topic, created, Signal())
    made.values.append(b"v")
    made.keys.append(None)
    made.partitions.append(-1)
    return made


def test_batches_of_a_topic_follow_each_other_without_a_gap() -> None:
    sequences = Sequences(60.0)
    batches = [batch(), batch("u"), batch()]
    assert [sequences.number(each) for each in batches] == [(0, 0), (0, 0), (0, 1)]
    assert [sequences.number(each) for each in batches] == [(0, 0), (0, 0), (0, 1)]  # until they are settled
    assert sequences.judge(batches, [STORED] * 3, 0.0) == [(each, STORED) for each in batches]
    assert sequences.number(batch()) == (0, 2)
    assert len({Sequences(1.0).producer for _ in range(100)}) == 100


@pytest.mark.parametrize("kind", [ConnectionFailed, OutcomeUnknown, ServerFailed, WriteDoubtful])
def test_what_may_have_been_stored_keeps_its_number(kind: type[Exception]) -> None:
    sequences = Sequences(60.0)
    first, second = batch(), batch()
    numbers = [sequences.number(first), sequences.number(second)]
    assert sequences.judge([first, second], [kind("?"), OutOfOrder("out of order")], 59.0) == []
    assert [sequences.number(first), sequences.number(second)] == numbers


def test_behind_what_was_refused_a_new_epoch_begins() -> None:
    sequences = Sequences(60.0)
    first, second, other = batch(), batch(), batch("u")
    for each in (first, second, other):
        sequences.number(each)
    refusal = NotFound("partition 7 not found")
    outcomes: list[Any] = [refusal, OutOfOrder("out of order"), STORED]
    assert sequences.judge([first, second, other], outcomes, 1.0) == [(first, refusal), (other, STORED)]
    assert sequences.number(second) == (1, 0)
    assert sequences.number(batch("u")) == (0, 1)


def test_when_the_time_is_up_the_outcome_is_unknown() -> None:
    sequences = Sequences(60.0)
    late, next_one = batch(), batch(created=50.0)
    sequences.number(late), sequences.number(next_one)
    ((settled, outcome),) = sequences.judge([late, next_one], [ConnectionFailed("gone"), OutOfOrder("?")], 60.0)
    assert settled is late
    assert isinstance(outcome, OutcomeUnknown)
    assert sequences.number(next_one) == (1, 0)  # a higher epoch, whether or not the late one was stored


def test_sending_goes_on_until_all_is_settled() -> None:
    """Seven batches, five of which may be on their way; the server is away for a while, and refuses one."""
    sequences, settled, delays = Sequences(1e9), list[tuple[Batch, Any]](), list[int]()
    batches = [batch(created=1e9) for _ in range(7)]

    def delay(failures: int) -> float:
        delays.append(failures)
        return 0.25

    def settle(some: Sequence[Batch], outcomes: Sequence[Any]) -> None:
        settled.extend(zip(some, outcomes, strict=True))

    steps = send_once(batches, sequences, delay, settle)
    away, refusal = ConnectionFailed("away"), ReplyError("no")
    requests: Any = next(steps)
    assert [spec.request.sequence for spec in requests] == [0, 1, 2, 3, 4]
    assert all(spec.idempotent for spec in requests)
    assert steps.throw(away) == 0.25
    requests = steps.send(None)
    assert [spec.request.sequence for spec in requests] == [0, 1, 2, 3, 4]
    requests = steps.send([STORED, STORED, refusal, OutOfOrder("?"), OutOfOrder("?")])
    assert [(spec.request.epoch, spec.request.sequence) for spec in requests] == [(1, 0), (1, 1), (1, 2), (1, 3)]
    with pytest.raises(StopIteration):
        steps.send([STORED] * 4)
    assert [outcome for _, outcome in settled] == [STORED, STORED, refusal, *[STORED] * 4]
    assert [each for each, _ in settled] == batches
    assert delays == [0]


def test_an_interruption_settles_what_is_left() -> None:
    settled = list[Any]()
    steps = send_once([batch()], Sequences(9.0), lambda _: 0.0, lambda _, outcomes: settled.extend(outcomes))
    next(steps)
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt())
    assert [type(outcome) for outcome in settled] == [OutcomeUnknown]
