"""Errors of the administration API's clients, in the family of all clients' errors."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.clients._core import errors as core


class ApiError(core.PenstockError):
    """Any failure of a request."""


class Unsendable(ApiError, core.Unsendable):
    """The request cannot be written. Nothing was sent."""


class BadReply(ApiError, core.BadReply):
    """The server sent something that is no reply of HTTP. The connection was closed."""


class ConnectionFailed(ApiError, core.ConnectionFailed):
    """No connection, or none that held until the reply, in as many attempts as the retry policy allows."""


class OutcomeUnknown(ApiError, core.OutcomeUnknown):
    """The connection was lost before the reply came: it may have been carried out, or not."""


class ReplyError(ApiError, core.ReplyError):
    """The server refused the request. `code` names the reason, for programs."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class NotFound(ReplyError):
    """There is no such thing, or not for us."""


class Unauthorized(ReplyError):
    """Nobody is logged in, or not somebody who may do this."""


class Conflict(ReplyError):
    """It is there already, or does not fit what is there, or a limit is reached."""


class ServerFailed(ReplyError):
    """The server could not do it now, through no fault of the request."""

    @property
    def retryable(self) -> bool:
        return self.status == 503


class TooFast(ReplyError):
    """Too many requests: later."""

    @property
    def not_executed(self) -> bool:
        return True


FAMILY: Final = core.ErrorFamily(Unsendable, BadReply, ConnectionFailed, OutcomeUnknown)

_STATUS: Final[dict[int, type[ReplyError]]] = {
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    409: Conflict,
    429: TooFast,
    500: ServerFailed,
    503: ServerFailed,
}


class _Reason(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Problem(msgspec.Struct):
    error: _Reason


def reply_error(status: int, body: bytes) -> ReplyError:
    """The exception for a reply with a status of 400 and above."""
    try:
        reason = msgspec.json.decode(body, type=_Problem).error
    except msgspec.MsgspecError:
        reason = _Reason("", body.decode(errors="replace").strip()[:1000])
    return _STATUS.get(status, ReplyError)(status, reason.code, reason.message or f"HTTP status {status}")
