"""Exceptions of both clients. `error_from_text` maps error replies by the beginning of their text, as not every server
sends codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.clients._core import errors as core
from penstock.wire.felix.errors import OUTCOME_UNKNOWN, Advice


class FelixError(core.PenstockError):
    """Any failure."""


class Unsendable(FelixError, core.Unsendable):
    """This dialect cannot express the request, or it does not fit into a frame. Nothing was sent."""


class BadReply(FelixError, core.BadReply):
    """The server sent something that is not a valid reply. The stream was closed. The outcome of the request is
    unknown."""


class ClientClosed(FelixError):
    """The client was closed. Nothing was sent."""


class ConnectionFailed(FelixError, core.ConnectionFailed):
    __doc__ = core.ConnectionFailed.__doc__


class CertificateRefused(ConnectionFailed):
    """The server's certificate is not the expected one, or not signed by a trusted authority. There is no retry."""


class StreamLost(FelixError):
    """A stream or connection broke before the reply. Never raised to users: the request is retried, or becomes
    OutcomeUnknown."""


class OutcomeUnknown(FelixError, core.OutcomeUnknown):
    """The request was sent but its reply was lost: it may have been executed or not."""


class TimedOut(OutcomeUnknown, core.TimedOut):
    __doc__ = core.TimedOut.__doc__


class SubscriptionEnded(FelixError):
    """The server ended a subscription gracefully: most likely its stream was deleted."""


class SubscriptionLost(FelixError):
    """A subscription was interrupted, and cannot continue without a gap. `offset` is its last position, if known. With
    `allow_gaps` it would have continued."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class PipelineError(FelixError, core.PipelineError):
    """Not all of `publish_batches` succeeded. `results` has one entry for each batch that was sent, in order: None if
    it is stored, or the error. Later batches were not sent."""

    def __init__(self, results: Sequence[Any]) -> None:
        errors = [result for result in results if result is not None]
        text = f"{len(errors)} of {len(results)} batches are not known to be stored, the first because: {errors[0]}"
        super().__init__(text, results)


# -- error replies


class ReplyError(FelixError, core.ReplyError):
    """The server refused the request. Most reasons have a subclass. `advice` is the error's code and whether to retry,
    if the server sends them."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.advice: Advice | None = None


class WriteDoubtful(OutcomeUnknown, ReplyError):
    """The server reported that its disk failed while it wrote the request: what is stored is known after its restart.
    Never retried by the client."""


class AuthenticationFailed(ReplyError):
    """The token is missing, or not accepted for this tenant."""


class Forbidden(ReplyError):
    """The authenticated user lacks the permission."""


class StreamNotFound(ReplyError):
    pass


class CacheNotFound(ReplyError):
    pass


class Overloaded(ReplyError):
    """The server or this tenant's quota is overloaded: retry after a while."""


class TooManySubscriptions(Overloaded):
    """More than the server allows on one connection. The client opens another one."""


class CursorError(ReplyError):
    """A subscription cannot start at this offset: `reason` is too_old or in_future, `available` the oldest available
    offset, or the end of the stream."""

    def __init__(self, reason: str, requested: int, available: int) -> None:
        kept = "the oldest that is kept is" if reason == "too_old" else "the stream ends at"
        super().__init__(f"offset {requested} is {reason.replace('_', ' ')}: {kept} {available}")
        self.reason = reason
        self.requested = requested
        self.available = available


_PREFIXES: Final[tuple[tuple[str, type[ReplyError]], ...]] = (
    (OUTCOME_UNKNOWN, WriteDoubtful),
    ("auth ", AuthenticationFailed),  # required, failed, already established
    ("forbidden", Forbidden),
    ("unauthorized", Forbidden),
    ("tenant mismatch", Forbidden),
    ("stream not found", StreamNotFound),
    ("cache scope not found", CacheNotFound),
    ("server overloaded", Overloaded),
    ("ingress overloaded", Overloaded),
    ("publish queue full", Overloaded),
    ("publish ingress byte budget exhausted", Overloaded),
    ("publish admission timed out", Overloaded),
    ("publish enqueue timed out", Overloaded),
    ("max subscriptions per connection exceeded", TooManySubscriptions),
    ("no more streams", TooManySubscriptions),
)


def error_from_text(message: str, advice: Advice | None = None) -> ReplyError:
    """The exception for the text of an error reply."""
    kind = next((kind for prefix, kind in _PREFIXES if message.startswith(prefix)), ReplyError)
    error = kind(message)
    error.advice = advice
    return error
