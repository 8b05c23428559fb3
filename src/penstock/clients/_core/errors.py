"""Exceptions of all clients: one family with one root. Each door derives its own from these, under the same names.

`ErrorFamily` tells the core which classes of a door to raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class PenstockError(Exception):
    """Any failure of a request."""


class Unsendable(PenstockError):
    """The request cannot be carried by the protocol. Nothing was sent."""


class BadReply(PenstockError):
    """The server sent something that is no answer to the request. The connection was closed. As far as this server can
    be trusted at all, the outcome is unknown."""


class ConnectionFailed(PenstockError):
    """No connection, or none that held until the reply, in as many attempts as the retry policy allows. The request was
    not carried out, or may be repeated without harm."""


class OutcomeUnknown(PenstockError):
    """The request was sent, and its reply did not come, or said that the outcome is unknown: it may have been carried
    out, or not. Raised for what must not be carried out twice."""


class TimedOut(OutcomeUnknown):
    """No reply in the time that the caller allows. It is not sent again, whatever it was: a slow server would only
    become slower."""


class PoolTimeout(PenstockError):
    """All connections of the pool were in use for too long. Nothing was sent."""


class ReplyError(PenstockError):
    """The server answered with an error. The properties say whether to send the request again; `RetryState` does."""

    @property
    def retryable(self) -> bool:
        """Whether the failure passes: what is idempotent may be sent again after a while."""
        return False

    @property
    def not_executed(self) -> bool:
        """Whether the request was certainly not carried out: anything may be sent again."""
        return False

    @property
    def not_leader(self) -> bool:
        """Whether another server of the cluster has to be used."""
        return False

    @property
    def leader(self) -> str | None:
        """The leader, as host:port, if this server named it."""
        return None


class PipelineError(PenstockError):
    """Not all requests of a pipeline succeeded. `results` has one entry for each that was sent, in order: its result,
    or the error. Those behind were not sent."""

    def __init__(self, text: str, results: Sequence[Any]) -> None:
        super().__init__(text)
        self.results = list(results)


@dataclass(frozen=True, slots=True)
class ErrorFamily:
    """The classes of a door that the core raises. Each is made of one text."""

    unsendable: type[Unsendable] = Unsendable
    bad_reply: type[BadReply] = BadReply
    connection_failed: type[ConnectionFailed] = ConnectionFailed
    outcome_unknown: type[OutcomeUnknown] = OutcomeUnknown
    timed_out: type[TimedOut] = TimedOut
    pool_timeout: type[PoolTimeout] = PoolTimeout

    def unknown(self, reason: Exception) -> OutcomeUnknown:
        """The outcome of a request whose connection was lost for this reason."""
        error = self.outcome_unknown(f"The connection was lost: {reason}")
        error.__cause__ = reason
        return error
