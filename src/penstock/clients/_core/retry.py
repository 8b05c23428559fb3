"""Retries: which requests are sent again, and which become OutcomeUnknown. `penstock.retry.RetryPolicy` decides how
often and with which delay. Nothing here sleeps or connects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.clients._core.errors import ErrorFamily, PenstockError, ReplyError
from penstock.clients._core.requests import PENDING, RequestBatch, RequestSpec
from penstock.retry import RetryPolicy


class Redirect(NamedTuple):
    """The server is not the leader; `leader` is, if it named one."""

    leader: str | None


class RetryState:
    """Requests and their outcomes so far, across as many connections as the policy allows.

    Answered requests are not sent again, except for a single request with a transient error. If the connection is lost,
    the rest is sent again if all of it is idempotent, and otherwise becomes OutcomeUnknown. A request with side effects
    whose retry is refused becomes OutcomeUnknown too: the first attempt may have succeeded."""

    __slots__ = ("_errors", "_failed", "_policy", "_sent", "_specs", "_uncertain", "outcomes", "redirect")

    def __init__(self, specs: Sequence[RequestSpec[Any]], policy: RetryPolicy, errors: ErrorFamily) -> None:
        self.outcomes: list[Any] = [PENDING] * len(specs)
        self.redirect: Redirect | None = None  # the next attempt must go to another server
        self._specs = specs
        self._policy = policy
        self._errors = errors
        self._sent: Sequence[int] = range(len(specs))  # indexes of the requests in the last attempt
        self._failed = 0  # attempts without any reply, since the last one with any
        self._uncertain = False  # an attempt whose reply was lost may have been executed

    @property
    def over(self) -> bool:
        return all(outcome is not PENDING for outcome in self.outcomes)

    def next(self) -> Sequence[RequestSpec[Any]]:
        """The requests of the next attempt."""
        sent = self._sent = [at for at, outcome in enumerate(self.outcomes) if outcome is PENDING]
        return self._specs if len(sent) == len(self._specs) else [self._specs[at] for at in sent]

    def record(self, batch: RequestBatch) -> float:
        """Record the outcomes of an attempt. Returns the seconds to wait before the next one, if not `over`."""
        uncertain = self._uncertain
        delay = self._recorded(batch)
        if uncertain:
            for at in self._sent:
                self.outcomes[at] = self._judged(self._specs[at], self.outcomes[at])
        return delay

    def _recorded(self, batch: RequestBatch) -> float:
        for at, outcome in zip(self._sent, batch.outcomes, strict=True):
            if outcome is not PENDING:
                self.outcomes[at] = outcome
        lost = batch.lost
        if lost is not None and not isinstance(lost, PenstockError):
            return self._connection_lost(lost, any_reply=batch.answered > 0)
        if lost is not None:  # the server sent something that ended the connection
            self._settle(lost)
        if batch.count == 1 and isinstance(self.outcomes[self._sent[0]], ReplyError):
            return self._refused(self._sent[0])
        return 0.0

    def unreachable(self, error: PenstockError) -> None:
        """Record that no connection can be established. Raises the error if nothing has been answered; otherwise it is
        the outcome of the rest."""
        if all(outcome is PENDING for outcome in self.outcomes):
            judged = [self._judged(spec, error) for spec in self._specs] if self._uncertain else []
            raise next((found for found in judged if found is not error), error)
        self.outcomes = [
            (self._judged(spec, error) if self._uncertain else error) if outcome is PENDING else outcome
            for spec, outcome in zip(self._specs, self.outcomes, strict=True)
        ]

    def _judged(self, spec: RequestSpec[Any], outcome: Any) -> Any:
        """The outcome; or OutcomeUnknown if a retry was refused: the refusal says nothing about the first attempt,
        which may even be the reason for it."""
        if not spec.changes or not isinstance(outcome, ReplyError) or isinstance(outcome, spec.conclusive):
            return outcome
        unknown = self._errors.outcome_unknown(f"The connection was lost, and asked again the server says: {outcome}")
        unknown.__cause__ = outcome
        return unknown

    def _connection_lost(self, error: Exception, *, any_reply: bool) -> float:
        self._failed = 1 if any_reply else self._failed + 1
        failure: PenstockError
        if not all(self._specs[at].idempotent for at, outcome in enumerate(self.outcomes) if outcome is PENDING):
            failure = self._errors.unknown(error)
        elif self._failed < self._policy.attempts:
            self._uncertain = True
            return self._policy.delay(self._failed - 1)
        else:
            failure = self._errors.connection_failed(f"The connection was lost {self._failed} times: {error}")
            failure.__cause__ = error
        self._settle(failure)
        return 0.0

    def _refused(self, at: int) -> float:
        error: ReplyError = self.outcomes[at]
        again = error.not_executed or (error.retryable and self._specs[at].idempotent)
        if not again or self._failed + 1 >= self._policy.attempts:
            return 0.0
        self._failed += 1
        self.outcomes[at] = PENDING
        if error.not_leader:
            self.redirect = Redirect(error.leader)
            if error.leader is not None:
                return 0.0
        return self._policy.delay(self._failed - 1)

    def _settle(self, error: Exception) -> None:
        self.outcomes = [error if outcome is PENDING else outcome for outcome in self.outcomes]
