"""Exceptions of the Kimberlite clients. `clients._core.errors` has their general meaning.

Kimberlite reports an error as a code and a text. `reply_error` maps them to an exception, by a table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from penstock.clients._core import errors as core
from penstock.wire.kimberlite.errors import OUTCOME_UNKNOWN
from penstock.wire.kimberlite.messages import CloseReason, ErrorCode


class KimberliteError(core.PenstockError):
    """Any failure of a request."""


class Unsendable(KimberliteError, core.Unsendable):
    """This version of the protocol cannot express the request. Nothing was sent."""


class BadReply(KimberliteError, core.BadReply):
    __doc__ = core.BadReply.__doc__


class ConnectionFailed(KimberliteError, core.ConnectionFailed):
    __doc__ = core.ConnectionFailed.__doc__


class PoolTimeout(KimberliteError, core.PoolTimeout):
    __doc__ = core.PoolTimeout.__doc__


class OutcomeUnknown(KimberliteError, core.OutcomeUnknown):
    __doc__ = core.OutcomeUnknown.__doc__


class TimedOut(OutcomeUnknown, core.TimedOut):
    __doc__ = core.TimedOut.__doc__


class SubscriptionEnded(KimberliteError):
    """The server ended a subscription, and it cannot be resumed."""

    def __init__(self, reason: CloseReason) -> None:
        super().__init__(f"The server ended the subscription: {reason.value}")
        self.reason = reason


class PipelineError(KimberliteError, core.PipelineError):
    """Not all of `append_many` succeeded. `results` has one entry for each batch that was sent, in order: its offsets,
    or the error. Later batches were not sent."""

    def __init__(self, results: Sequence[Any]) -> None:
        errors = [result for result in results if isinstance(result, KimberliteError)]
        text = f"{len(errors)} of {len(results)} batches are not known to be stored, the first because: {errors[0]}"
        super().__init__(text, results)


FAMILY: Final = core.ErrorFamily(Unsendable, BadReply, ConnectionFailed, OutcomeUnknown, TimedOut, PoolTimeout)


# -- error replies

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

_BEFORE_EXECUTION: Final = frozenset((ErrorCode.PROJECTION_LAG, ErrorCode.RATE_LIMITED, ErrorCode.NOT_LEADER))
"""Codes among them that are sent before the request is executed."""


class ReplyError(KimberliteError, core.ReplyError):
    """The server refused the request. Most codes have a subclass."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} (code {int(self.code)})"

    @property
    def retryable(self) -> bool:
        """Whether the specification advises a retry after a while."""
        return self.code in RETRYABLE

    @property
    def not_executed(self) -> bool:
        """Whether the request was certainly not executed: then any request may be retried."""
        # The original also uses the code of its rate limit for a commit that it gave up waiting for.
        return self.code in _BEFORE_EXECUTION and not self.message.startswith("no_quorum")


class ServerFailed(ReplyError):
    """The server could not execute the request, through no fault of the client: codes 1 and 12."""


class WriteDoubtful(OutcomeUnknown, ReplyError):
    """The server reported that its disk failed while it wrote the request: what is stored is known after its restart.
    Never retried by the client."""


class InvalidRequest(ReplyError):
    """The request was invalid, or this server does not support it."""


class AuthenticationFailed(ReplyError):
    """The token is missing or invalid, or its owner lacks the permission."""


class TenantNotFound(ReplyError):
    pass


class StreamNotFound(ReplyError):
    pass


class TableNotFound(ReplyError):
    pass


class QueryParseError(ReplyError):
    """The server cannot parse the statement."""


class QueryExecutionError(ReplyError):
    """The statement could not be executed."""


class PositionAhead(ReplyError):
    """The log has not reached the position of a `query_at` yet."""


class StreamAlreadyExists(ReplyError):
    pass


class InvalidOffset(ReplyError):
    pass


class ProjectionLag(ReplyError):
    """Tables have not caught up with the position of a `query_at` yet."""


class RateLimited(ReplyError):
    """Too many requests of this tenant, or another of its quotas is exceeded."""


_HINT: Final = re.compile(r"(?:\btry |\bleader hint: )(\[[0-9A-Fa-f:.]+\]|[\w.-]+):(\d{1,5})\b")


class NotLeader(ReplyError):
    """The request must go to another server of the cluster."""

    @property
    def not_leader(self) -> bool:
        return True

    @property
    def leader(self) -> str | None:
        """The leader's address as host:port, if this server named it."""
        found = _HINT.search(self.message)
        return None if found is None or not 0 < int(found[2]) < 65536 else f"{found[1]}:{found[2]}"


_ACTUAL: Final = re.compile(r"\bactual (\d{1,20})\b")


class OffsetMismatch(ReplyError):
    """The stream does not end at the append's expected offset. Nothing was stored."""

    @property
    def actual(self) -> int | None:
        """The end of the stream, if the server reported it."""
        found = _ACTUAL.search(self.message)
        return None if found is None else int(found[1])


class SubscriptionNotFound(ReplyError):
    pass


class ApiKeyNotFound(ReplyError):
    pass


class TenantAlreadyExists(ReplyError):
    pass


class DuplicateKey(ReplyError):
    """A row with this primary key already exists."""


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


def reply_error(code: ErrorCode, message: str) -> ReplyError:
    """The exception for an error reply."""
    if code is ErrorCode.UNKNOWN and message == OUTCOME_UNKNOWN:
        return WriteDoubtful(code, message)
    return _CLASSES.get(code, ReplyError)(code, message)
