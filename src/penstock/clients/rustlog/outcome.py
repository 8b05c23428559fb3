"""What can come of a request: a reply, an error that the server sent, or a connection that did not hold.

Here are the exceptions that both clients raise, and the rule which requests may be sent twice. Nothing here does input
or output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from penstock.wire.rustlog.codec.dialect import Dialect
from penstock.wire.rustlog.errors import ProtocolError
from penstock.wire.rustlog.frames import MAX_FRAME, frame
from penstock.wire.rustlog.messages import (
    DescribePartition,
    DescribeTopic,
    Error,
    Fetch,
    ListTopics,
    MetricsFetch,
    OffsetCommit,
    OffsetFetch,
    Ping,
    ProduceResponse,
    Request,
    Response,
)

MAX_WINDOW: Final = 1024  # requests in flight; their replies must fit the sockets' buffers while nobody reads them

R = TypeVar("R")


class RustLogError(Exception):
    """Any failure of a request."""


class Unsendable(RustLogError):
    """The request cannot be written in this dialect, or does not fit a frame. Nothing was sent."""


class ReplyError(RustLogError):
    """The server answered with an error."""

    def __init__(self, code: int, message: str, details: dict[str, Any] | None) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code
        self.message = message
        self.details = details


class ClientError(ReplyError):
    """The request was wrong: to send it again would not help."""


class ServerError(ReplyError):
    """The server could not do it now. Nothing was stored; it may be sent again after a while."""


class BadReply(RustLogError):
    """The server sent something that is no answer to the request. The connection was closed. As far as this server can
    be trusted at all, the outcome is unknown."""


class ConnectionFailed(RustLogError):
    """No connection, or none that held until the reply, in as many attempts as the retry policy allows. The request was
    not carried out, or may be repeated without harm."""


class OutcomeUnknown(RustLogError):
    """The connection was lost after the request was sent and before its reply came: it may have been carried out, or
    not. Raised for Produce and CreateTopic, which are never sent twice without being asked to, because a repeated
    Produce could store its records twice. Read the end of the partition to find out."""


class PipelineError(RustLogError):
    """Not all of `produce_many` succeeded. `results` has one entry for each request that was sent, in order: its
    ProduceResponse, or the error. Requests behind those were not sent."""

    def __init__(self, results: Sequence[ProduceResponse | RustLogError]) -> None:
        failed = sum(isinstance(result, RustLogError) for result in results)
        super().__init__(f"{failed} of {len(results)} requests in a pipeline failed")
        self.results = list(results)


# To carry these out twice is the same as once. CreateTopic is not among them: the second would say that it exists.
REPEATABLE: Final = (
    Fetch,
    OffsetCommit,
    OffsetFetch,
    ListTopics,
    DescribeTopic,
    DescribePartition,
    MetricsFetch,
    Ping,
)

# Codes of the binary dialect below 400 by which the server says that it failed, not the client.
_SERVER_FAULTS: Final = frozenset({4, 5})


def framed(dialect: Dialect, request: Request) -> bytes:
    """The request as it goes out, or Unsendable."""
    try:
        payload = dialect.encode_request(request)
    except (ProtocolError, UnicodeEncodeError) as error:
        raise Unsendable(str(error)) from error
    if len(payload) > MAX_FRAME:
        raise Unsendable(f"The request of {len(payload)} bytes does not fit a frame (max: {MAX_FRAME})")
    return frame(payload)


def reply_of(dialect: Dialect, payload: bytes) -> Response:
    try:
        return dialect.decode_response(payload)
    except ProtocolError as error:
        raise BadReply(f"The server sent an unreadable reply: {error}") from error


def expect(reply: Response, kind: type[R]) -> R:
    """The reply if it is of this kind, else the error that it stands for."""
    if isinstance(reply, kind):
        return reply
    if isinstance(reply, Error):
        if reply.code >= 500 or reply.code in _SERVER_FAULTS:
            raise ServerError(reply.code, reply.message, reply.details)
        raise ClientError(reply.code, reply.message, reply.details)
    raise BadReply(f"The server sent {type(reply).__name__} where {kind.__name__} was due")


def check_window(window: int) -> None:
    if not 1 <= window <= MAX_WINDOW:
        raise ValueError(f"window must be from 1 to {MAX_WINDOW}")


def settled(results: Sequence[ProduceResponse | RustLogError]) -> list[ProduceResponse]:
    """The results if all are good."""
    good = [result for result in results if isinstance(result, ProduceResponse)]
    if len(good) < len(results):
        raise PipelineError(results)
    return good
