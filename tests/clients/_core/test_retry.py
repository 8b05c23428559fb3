"""Requests that are sent again, or become OutcomeUnknown, and the delays between attempts."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.clients._core.errors import (
    BadReply,
    ConnectionFailed,
    ErrorFamily,
    OutcomeUnknown,
    PenstockError,
    ReplyError,
)
from penstock.clients._core.requests import PENDING, RequestBatch, RequestSpec, whole
from penstock.clients._core.retry import Redirect, RetryState
from penstock.retry import RetryPolicy

POLICY = RetryPolicy(attempts=3, base=1.0, cap=60.0, random=lambda: 0.5)
READ = RequestSpec("read", whole, idempotent=True)
WRITE = RequestSpec("write", whole)
LOST = ConnectionResetError("gone")


class Passing(ReplyError):
    retryable = True


class NotYet(ReplyError):
    not_executed = True


class Elsewhere(NotYet):
    not_leader = True

    def __init__(self, leader: str | None) -> None:
        super().__init__("not the leader")
        self._leader = leader

    @property
    def leader(self) -> str | None:
        return self._leader


def attempt(state: RetryState, *outcomes: Any, lost: Exception | None = None) -> float:
    """One attempt with these outcomes; the rest is lost, if it is."""
    batch = RequestBatch(state.next())
    for at, outcome in enumerate(outcomes):
        batch.settle(at, outcome)
    if lost is not None:
        batch.lose(lost)
    assert batch.is_set
    return state.record(batch)


def state_of(*specs: RequestSpec[Any]) -> RetryState:
    return RetryState(specs, POLICY, ErrorFamily())


def test_results_are_kept_as_they_come() -> None:
    state = state_of(READ, WRITE)
    assert attempt(state, 1, 2) == 0.0
    assert state.over
    assert state.outcomes == [1, 2]


# How often the connection is lost before any reply, the request, and what comes of it.
LOSSES = [
    (1, READ, None, 0.5),
    (2, READ, None, 1.0),
    (3, READ, ConnectionFailed, 0.0),
    (1, WRITE, OutcomeUnknown, 0.0),
]


@pytest.mark.parametrize(("losses", "spec", "failure", "pause"), LOSSES)
def test_a_lost_connection(losses: int, spec: RequestSpec[Any], failure: type[Exception] | None, pause: float) -> None:
    state = state_of(spec)
    for _ in range(losses):
        last = attempt(state, lost=LOST)
    assert last == pause
    assert state.over == (failure is not None)
    if failure is None:
        assert state.outcomes == [PENDING]
    else:
        assert type(state.outcomes[0]) is failure
        assert state.outcomes[0].__cause__ is LOST


def test_only_what_was_not_answered_is_sent_again() -> None:
    state = state_of(WRITE, READ, READ)
    assert attempt(state, "stored", lost=LOST) == 0.5
    assert list(state.next()) == [READ, READ]
    attempt(state, "a", "b")
    assert state.outcomes == ["stored", "a", "b"]


def test_one_that_is_not_idempotent_keeps_the_others_from_being_sent_again() -> None:
    """They were sent in this order, and may depend on each other."""
    state = state_of(READ, WRITE, READ)
    attempt(state, "a", lost=LOST)
    assert state.over
    assert state.outcomes[0] == "a"
    assert [type(outcome) for outcome in state.outcomes[1:]] == [OutcomeUnknown] * 2


def test_any_reply_makes_the_attempts_count_anew() -> None:
    state = state_of(READ, READ, READ)
    pauses = [attempt(state, lost=LOST), attempt(state, 1, lost=LOST), attempt(state, lost=LOST)]
    assert pauses == [0.5, 0.5, 1.0]
    assert not state.over
    attempt(state, lost=LOST)
    assert state.over


def test_what_the_server_says_at_the_end_of_a_connection_is_the_outcome() -> None:
    state = state_of(READ, WRITE)
    bad = BadReply("nonsense")
    assert attempt(state, 1, lost=bad) == 0.0
    assert state.outcomes == [1, bad]


# An error of a single request, and whether it is sent again: one that is idempotent, one that is not.
ERRORS = [
    (ReplyError("no"), False, False),
    (Passing("later"), True, False),
    (NotYet("not now"), True, True),
    (Elsewhere(None), True, True),
]


@pytest.mark.parametrize(("error", "read_again", "write_again"), ERRORS)
def test_an_error_of_a_single_request(error: ReplyError, read_again: bool, write_again: bool) -> None:
    for spec, again in ((READ, read_again), (WRITE, write_again)):
        state = state_of(spec)
        assert attempt(state, error) == (0.5 if again else 0.0)
        assert state.over != again


def test_an_error_that_passes_is_given_up_after_the_last_attempt() -> None:
    state = state_of(READ)
    assert [attempt(state, Passing("later")) for _ in range(3)] == [0.5, 1.0, 0.0]
    assert isinstance(state.outcomes[0], Passing)


def test_errors_of_several_requests_are_their_outcomes() -> None:
    state = state_of(READ, READ)
    attempt(state, Passing("later"), 2)
    assert state.over


def test_a_redirect_is_followed_at_once_if_the_leader_is_known() -> None:
    state = state_of(WRITE)
    assert attempt(state, Elsewhere("b:1")) == 0.0
    assert not state.over
    assert state.redirect == Redirect("b:1")
    state = state_of(WRITE)
    assert attempt(state, Elsewhere(None)) == 0.5
    assert state.redirect == Redirect(None)


class Exists(ReplyError):
    pass


CREATE: RequestSpec[Any] = RequestSpec("create", whole, idempotent=True, changes=True)


def test_an_error_of_a_repetition_may_be_due_to_the_first_time() -> None:
    state = state_of(CREATE)
    attempt(state, Exists("first time"))
    assert isinstance(state.outcomes[0], Exists)
    state = state_of(CREATE)
    attempt(state, lost=LOST)
    attempt(state, Exists("second time"))
    assert type(state.outcomes[0]) is OutcomeUnknown


def test_any_refusal_of_a_repetition_leaves_open_what_the_first_time_did() -> None:
    state = state_of(CREATE)
    attempt(state, lost=LOST)
    assert attempt(state, Passing("not now")) > 0 and not state.over  # it is asked again all the same
    attempt(state, Passing("not now either"))
    assert type(state.outcomes[0]) is OutcomeUnknown
    assert isinstance(state.outcomes[0].__cause__, Passing)


def test_a_refusal_that_proves_that_the_first_time_did_nothing_stays_what_it_is() -> None:
    state = state_of(RequestSpec("commit", whole, idempotent=True, changes=True, conclusive=(Exists,)))
    attempt(state, lost=LOST)
    attempt(state, Exists("nothing was done"))
    assert isinstance(state.outcomes[0], Exists)


def test_what_only_reads_is_refused_plainly_however_often_it_was_asked() -> None:
    state = state_of(READ)
    attempt(state, lost=LOST)
    attempt(state, Exists("no"))
    assert isinstance(state.outcomes[0], Exists)


def test_what_a_pipeline_was_told_before_the_connection_was_lost_is_known() -> None:
    state = state_of(CREATE, CREATE)
    attempt(state, Exists("answered"), lost=LOST)
    attempt(state, Exists("asked again"))
    assert isinstance(state.outcomes[0], Exists) and type(state.outcomes[1]) is OutcomeUnknown


def test_a_server_that_lets_nobody_in_any_more_does_not_say_what_became_of_it() -> None:
    state = state_of(CREATE)
    attempt(state, lost=LOST)
    with pytest.raises(OutcomeUnknown):
        state.unreachable(Exists("the token has expired"))
    state = state_of(CREATE)
    with pytest.raises(Exists):  # nothing was sent
        state.unreachable(Exists("the token has expired"))
    state = state_of(CREATE, CREATE)
    attempt(state, 1, lost=LOST)
    state.unreachable(Exists("the token has expired"))
    assert type(state.outcomes[1]) is OutcomeUnknown


def test_no_connection_is_raised_if_nothing_was_answered() -> None:
    failure = ConnectionFailed("no server")
    with pytest.raises(ConnectionFailed):
        state_of(READ).unreachable(failure)
    state = state_of(READ, READ)
    attempt(state, 1, lost=LOST)
    state.unreachable(failure)
    assert state.outcomes == [1, failure]


def test_doors_raise_their_own_classes() -> None:
    class DoorError(PenstockError):
        pass

    class Unknown(DoorError, OutcomeUnknown):
        pass

    class Failed(DoorError, ConnectionFailed):
        pass

    errors = ErrorFamily(outcome_unknown=Unknown, connection_failed=Failed)
    write = RetryState([WRITE], POLICY, errors)
    attempt(write, lost=LOST)
    assert type(write.outcomes[0]) is Unknown
    read = RetryState([READ], RetryPolicy(attempts=1), errors)
    attempt(read, lost=LOST)
    assert type(read.outcomes[0]) is Failed


# -- the policy


def test_waits_grow_with_full_jitter_up_to_the_cap() -> None:
    highest = RetryPolicy(base=0.1, cap=1.0, random=lambda: 1.0)
    assert [highest.delay(attempt) for attempt in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert highest.delay(100_000) == 1.0
    lowest = RetryPolicy(base=0.1, cap=1.0, random=lambda: 0.0)
    assert lowest.delay(3) == 0.0
    jittered = {RetryPolicy().delay(3) for _ in range(50)}
    assert len(jittered) > 1
    assert all(0 <= delay <= 0.4 for delay in jittered)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"base": -1.0}, {"cap": -1.0}])
def test_a_policy_has_bounds(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="attempts"):
        RetryPolicy(**wrong)
