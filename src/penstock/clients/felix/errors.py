"""Exceptions of both clients. `error_from_text` maps an error by how its text begins: not every server has codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.clients._core import errors as core
from penstock.wire.felix.errors import OUTCOME_UNKNOWN, Advice


class FelixError(core.PenstockError):
    """Any failure."""


class Unsendable(FelixError, core.Unsendable):
    """The request cannot be written in this dialect, or does not fit a frame. Nothing was sent."""


class BadReply(FelixError, core.BadReply):
    """The server sent something that is no answer. The stream was given up. As far as this server can be trusted at
    all, the outcome is unknown."""


class ClientClosed(FelixError):
    """The client was closed. Nothing was sent."""


class ConnectionFailed(FelixError, core.ConnectionFailed):
    __doc__ = core.ConnectionFailed.__doc__


class CertificateRefused(ConnectionFailed):
    """The server's certificate is not the expected one, or not signed by whom we trust. It is not tried again."""


class StreamLost(FelixError):
    """A stream or connection broke before the reply. Never raised to users: the request is sent again, or
    it becomes OutcomeUnknown."""


class OutcomeUnknown(FelixError, core.OutcomeUnknown):
    """The request was sent and its reply did not come: it may have been carried out, or not."""


class TimedOut(OutcomeUnknown, core.TimedOut):
    __doc__ = core.TimedOut.__doc__


class SubscriptionEnded(FelixError):
    """The server ended a subscription in an orderly way: most likely its stream was deleted."""


class SubscriptionLost(FelixError):
    """A subscription was interrupted, and cannot go on without leaving something out. `offset` is where it was, if that
    is known. With `allow_gaps` it would have gone on."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class PipelineError(FelixError, core.PipelineError):
    """Not all of `publish_batches` succeeded. `results` has one entry for each batch that was sent, in order: None if
    it is stored, or the error. Batches behind those were not sent."""

    def __init__(self, results: Sequence[Any]) -> None:
        errors = [result for result in results if result is not None]
        text = f"{len(errors)} of {len(results)} batches are not known to be stored, the first because: {errors[0]}"
        super().__init__(text, results)


# -- error replies


class ReplyError(FelixError, core.ReplyError):
    """The server refused the request. A more exact class stands for most reasons. `advice` is the error's code and what
    to do about it, where the server tells."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.advice: Advice | None = None


class WriteDoubtful(OutcomeUnknown, ReplyError):
    """The server's disk failed while it wrote the request, and it said so: what is stored is known when it has been
    started again. Never sent again by the client."""


class AuthenticationFailed(ReplyError):
    """The token is missing, or not accepted for this tenant."""


class Forbidden(ReplyError):
    """Whoever this is may not do this."""


class StreamNotFound(ReplyError):
    pass


class CacheNotFound(ReplyError):
    pass


class Overloaded(ReplyError):
    """The server has too much to do, or this tenant too much already: try again after a while."""


class TooManySubscriptions(Overloaded):
    """More than the server allows on one connection. The client opens another."""


class CursorError(ReplyError):
    """A subscription cannot start at this offset: `reason` is too_old or in_future, `available` the oldest that is
    kept, or where the stream ends."""

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
