"""Exceptions of the RustLog clients. `clients._core.errors` has their general meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.clients._core import errors as core
from penstock.wire.rustlog.errors import OUTCOME_UNKNOWN
from penstock.wire.rustlog.messages import Error, ProduceResponse


class RustLogError(core.PenstockError):
    """Any failure of a request."""


class Unsendable(RustLogError, core.Unsendable):
    """This dialect cannot express the request, or it does not fit into a frame. Nothing was sent."""


class ReplyError(RustLogError, core.ReplyError):
    """The server answered with an error."""

    def __init__(self, code: int, message: str, details: dict[str, Any] | None) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code
        self.message = message
        self.details = details


class ClientError(ReplyError):
    """The request was invalid: a retry would not help."""


class ServerError(ReplyError):
    """The server could not execute the request now. Nothing was stored; it may be retried after a while."""


class BadReply(RustLogError, core.BadReply):
    __doc__ = core.BadReply.__doc__


class ConnectionFailed(RustLogError, core.ConnectionFailed):
    __doc__ = core.ConnectionFailed.__doc__


class OutcomeUnknown(RustLogError, core.OutcomeUnknown):
    """The connection was lost between request and reply: the request may have been executed or not. Raised for Produce
    and CreateTopic, which are never retried automatically, because a repeated Produce could store its records twice.
    Read the end of the partition to find out."""


class WriteDoubtful(OutcomeUnknown, ReplyError):
    """The server reported that its disk failed while it wrote the request: what is stored is known after its restart.
    Never retried by the client."""


class PipelineError(RustLogError, core.PipelineError):
    """Not all of `produce_many` succeeded. `results` has one entry for each request that was sent, in order: its
    ProduceResponse, or the error. Later requests were not sent."""

    def __init__(self, results: Sequence[ProduceResponse | RustLogError]) -> None:
        failed = sum(isinstance(result, RustLogError) for result in results)
        super().__init__(f"{failed} of {len(results)} requests in a pipeline failed", results)


FAMILY: Final = core.ErrorFamily(
    unsendable=Unsendable, bad_reply=BadReply, connection_failed=ConnectionFailed, outcome_unknown=OutcomeUnknown
)

# Codes of the binary dialect below 400 that mean a failure of the server, not of the client.
_SERVER_FAULTS: Final = frozenset({4, 5})


def reply_error(reply: Error) -> ReplyError:
    """The exception for an error reply."""
    if reply.message.endswith(OUTCOME_UNKNOWN):
        return WriteDoubtful(reply.code, reply.message, reply.details)
    kind = ServerError if reply.code >= 500 or reply.code in _SERVER_FAULTS else ClientError
    return kind(reply.code, reply.message, reply.details)
