"""Exceptions of all clients: one hierarchy with one root. Each door derives its own from these, under the same names.

`ErrorFamily` tells the core which classes of a door to raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class PenstockError(Exception):
    """Any failure of a request."""


class Unsendable(PenstockError):
    """The protocol cannot express the request. Nothing was sent."""


class BadReply(PenstockError):
    """The server sent something that is not a valid reply to the request. The connection was closed. The outcome of the
    request is unknown."""


class ConnectionFailed(PenstockError):
    """No connection was established, or none lasted until the reply, in as many attempts as the retry policy allows.
    The request was not executed, or is safe to repeat."""


class OutcomeUnknown(PenstockError):
    """The request was sent, but its reply was lost, or said that the outcome is unknown: it may have been executed or
    not. Raised for requests that must not be executed twice."""


class TimedOut(OutcomeUnknown):
    """No reply within the caller's timeout. Not even idempotent requests are retried: that would slow down a slow
    server further."""


class PoolTimeout(PenstockError):
    """All connections of the pool were in use for too long. Nothing was sent."""


class ReplyError(PenstockError):
    """The server answered with an error. The properties say whether to retry the request; `RetryState` does."""

    @property
    def retryable(self) -> bool:
        """Whether the failure is transient: an idempotent request may be retried after a while."""
        return False

    @property
    def not_executed(self) -> bool:
        """Whether the request was certainly not executed: then any request may be retried."""
        return False

    @property
    def not_leader(self) -> bool:
        """Whether the request must go to another server of the cluster."""
        return False

    @property
    def leader(self) -> str | None:
        """The leader, as host:port, if this server named it."""
        return None


class PipelineError(PenstockError):
    """Not all requests of a pipeline succeeded. `results` has the result or the error of each request that was sent, in
    order. Later ones were not sent."""

    def __init__(self, text: str, results: Sequence[Any]) -> None:
        super().__init__(text)
        self.results = list(results)


@dataclass(frozen=True, slots=True)
class ErrorFamily:
    """The classes of a door that the core raises. Their only argument is a text."""

    unsendable: type[Unsendable] = Unsendable
    bad_reply: type[BadReply] = BadReply
    connection_failed: type[ConnectionFailed] = ConnectionFailed
    outcome_unknown: type[OutcomeUnknown] = OutcomeUnknown
    timed_out: type[TimedOut] = TimedOut
    pool_timeout: type[PoolTimeout] = PoolTimeout

    def unknown(self, reason: Exception) -> OutcomeUnknown:
        """The error for a request whose connection was lost for this reason."""
        error = self.outcome_unknown(f"The connection was lost: {reason}")
        error.__cause__ = reason
        return error
