"""Errors of the administration API's clients, derived from those of the core."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.clients._core import errors as core
from penstock.typed_decoding import decode_json


class ApiError(core.PenstockError):
    """Any failure of a request."""


class Unsendable(ApiError, core.Unsendable):
    """The request cannot be encoded. Nothing was sent."""


class BadReply(ApiError, core.BadReply):
    """The server sent something that is not a valid HTTP reply. The connection was closed."""


class ConnectionFailed(ApiError, core.ConnectionFailed):
    """No connection was established, or none lasted until the reply, in as many attempts as the retry policy allows."""


class OutcomeUnknown(ApiError, core.OutcomeUnknown):
    """The connection was lost before the reply: the request may have been executed or not."""


class ReplyError(ApiError, core.ReplyError):
    """The server refused the request. `code` is the machine-readable reason."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class NotFound(ReplyError):
    """The object does not exist, or is not visible to this identity."""


class Unauthorized(ReplyError):
    """Not logged in, or without the required permission."""


class Conflict(ReplyError):
    """The object already exists or conflicts with the existing state, or a limit is reached."""


class ServerFailed(ReplyError):
    """The server could not execute the request now, through no fault of the client."""

    @property
    def retryable(self) -> bool:
        return self.status == 503


class TooFast(ReplyError):
    """Too many requests: retry later."""

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
    """The exception for a reply with a status of 400 or above."""
    try:
        reason = decode_json(body, _Problem).error
    except msgspec.MsgspecError:
        reason = _Reason("", body.decode(errors="replace").strip()[:1000])
    return _STATUS.get(status, ReplyError)(status, reason.code, reason.message or f"HTTP status {status}")
