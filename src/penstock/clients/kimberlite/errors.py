"""What can come of a request that is no result: the exceptions of both clients. Nothing here does input or output.

Kimberlite tells an error by a code and a text. `refusal` makes an exception of them, by a table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from penstock.wire.kimberlite.messages import CloseReason, ErrorCode


class KimberliteError(Exception):
    """Any failure of a request."""


class Unsendable(KimberliteError):
    """The request cannot be carried by this version of the protocol. Nothing was sent."""


class BadReply(KimberliteError):
    """The server sent something that is no answer to the request. The connection was closed. As far as this server can
    be trusted at all, the outcome is unknown."""


class ConnectionFailed(KimberliteError):
    """No connection, or none that held until the reply, in as many attempts as the retry policy allows. The request was
    not carried out, or may be repeated without harm."""


class PoolTimeout(KimberliteError):
    """All connections of the pool were in use for too long. Nothing was sent."""


class OutcomeUnknown(KimberliteError):
    """The request was sent and its reply did not come: it may have been carried out, or not. Raised for what must not
    be carried out twice."""


class TimedOut(OutcomeUnknown):
    """No reply in the time that the caller allows. It is not asked again, whatever it was: a slow server would only
    become slower."""


class SubscriptionEnded(KimberliteError):
    """The server ended a subscription, and there is nothing to resume."""

    def __init__(self, reason: CloseReason) -> None:
        super().__init__(f"The server ended the subscription: {reason.value}")
        self.reason = reason


class PipelineError(KimberliteError):
    """Not all of `append_many` succeeded. `results` has one entry for each batch that was sent, in order: where it is
    stored, or the error. Batches behind those were not sent."""

    def __init__(self, results: Sequence[Any]) -> None:
        errors = [result for result in results if isinstance(result, KimberliteError)]
        super().__init__(f"{len(errors)} of {len(results)} batches were not stored, the first because: {errors[0]}")
        self.results = list(results)


# -- what the server says

RETRYABLE: Final = frozenset(
    (
        ErrorCode.INTERNAL_ERROR,
        ErrorCode.STORAGE_ERROR,
        ErrorCode.PROJECTION_LAG,
        ErrorCode.RATE_LIMITED,
        ErrorCode.NOT_LEADER,
    )
)
"""By the specification's table."""

_BEFOREHAND: Final = frozenset((ErrorCode.PROJECTION_LAG, ErrorCode.RATE_LIMITED, ErrorCode.NOT_LEADER))
"""Of these, what is said before anything is carried out."""


class ReplyError(KimberliteError):
    """The server refused the request. A more exact class stands for most codes."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} (code {int(self.code)})"

    @property
    def retryable(self) -> bool:
        """Whether the specification advises to ask again after a while."""
        return self.code in RETRYABLE

    @property
    def untouched(self) -> bool:
        """Whether the request was certainly not carried out, so that anything may be asked again."""
        # The original uses the code of its rate limit for a commit that it gave up waiting for, too.
        return self.code in _BEFOREHAND and not self.message.startswith("no_quorum")


class ServerFailed(ReplyError):
    """The server could not do it, through no fault of the request: codes 1 and 12."""


class InvalidRequest(ReplyError):
    """The request was wrong in itself, or this server does not serve it."""


class AuthenticationFailed(ReplyError):
    """The token is missing or not accepted, or its owner may not do this."""


class TenantNotFound(ReplyError):
    pass


class StreamNotFound(ReplyError):
    pass


class TableNotFound(ReplyError):
    pass


class QueryParseError(ReplyError):
    """The statement is not SQL as the server knows it."""


class QueryExecutionError(ReplyError):
    """The statement could not be carried out."""


class PositionAhead(ReplyError):
    """The log has not reached the position of a `query_at`."""


class StreamAlreadyExists(ReplyError):
    pass


class InvalidOffset(ReplyError):
    pass


class ProjectionLag(ReplyError):
    """Tables have not caught up with the position of a `query_at`."""


class RateLimited(ReplyError):
    """Too many requests of this tenant, or another of its limits."""


_HINT: Final = re.compile(r"(?:\btry |\bleader hint: )(\[[0-9A-Fa-f:.]+\]|[\w.-]+):(\d{1,5})\b")


class NotLeader(ReplyError):
    """Another server of the cluster is the one to ask."""

    @property
    def leader(self) -> str | None:
        """Where it is, as host:port, if the server said so."""
        found = _HINT.search(self.message)
        return None if found is None or not 0 < int(found[2]) < 65536 else f"{found[1]}:{found[2]}"


_ACTUAL: Final = re.compile(r"\bactual (\d{1,20})\b")


class OffsetMismatch(ReplyError):
    """The stream does not end where the append expected it to. Nothing was stored."""

    @property
    def actual(self) -> int | None:
        """Where it ends, if the server said so."""
        found = _ACTUAL.search(self.message)
        return None if found is None else int(found[1])


class SubscriptionNotFound(ReplyError):
    pass


class ApiKeyNotFound(ReplyError):
    pass


class TenantAlreadyExists(ReplyError):
    pass


class DuplicateKey(ReplyError):
    """A row with this primary key exists."""


_CLASSES: Final[dict[ErrorCode, type[ReplyError]]] = {
    ErrorCode.INTERNAL_ERROR: ServerFailed,
    ErrorCode.INVALID_REQUEST: InvalidRequest,
    ErrorCode.AUTHENTICATION_FAILED: AuthenticationFailed,
    ErrorCode.TENANT_NOT_FOUND: TenantNotFound,
    ErrorCode.STREAM_NOT_FOUND: StreamNotFound,
    ErrorCode.TABLE_NOT_FOUND: TableNotFound,
    ErrorCode.QUERY_PARSE_ERROR: QueryParseError,
    ErrorCode.QUERY_EXECUTION_ERROR: QueryExecutionError,
    ErrorCode.POSITION_AHEAD: PositionAhead,
    ErrorCode.STREAM_ALREADY_EXISTS: StreamAlreadyExists,
    ErrorCode.INVALID_OFFSET: InvalidOffset,
    ErrorCode.STORAGE_ERROR: ServerFailed,
    ErrorCode.PROJECTION_LAG: ProjectionLag,
    ErrorCode.RATE_LIMITED: RateLimited,
    ErrorCode.NOT_LEADER: NotLeader,
    ErrorCode.OFFSET_MISMATCH: OffsetMismatch,
    ErrorCode.SUBSCRIPTION_NOT_FOUND: SubscriptionNotFound,
    ErrorCode.API_KEY_NOT_FOUND: ApiKeyNotFound,
    ErrorCode.TENANT_ALREADY_EXISTS: TenantAlreadyExists,
    ErrorCode.UNIQUE_CONSTRAINT_VIOLATION: DuplicateKey,
}


def refusal(code: ErrorCode, message: str) -> ReplyError:
    """The exception for what an error reply says."""
    return _CLASSES.get(code, ReplyError)(code, message)
