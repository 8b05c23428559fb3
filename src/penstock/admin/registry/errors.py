"""Errors in Confluent's format: a status, and an `error_code` of five digits that begins with it."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.admin.registry.messages import ErrorBody
from penstock.broker import errors as broker
from penstock.doors.http.errors import MAX_MESSAGE, HttpError, error_reply
from penstock.doors.http.replies import HttpReply, document

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
INVALID_LEVEL: Final = 42203
INVALID_MODE: Final = 42204
INTERNAL: Final = 50001

CODE: Final[dict[type[Exception], int]] = {
    broker.SchemaInvalid: INVALID_SCHEMA,
    broker.InvalidName: INVALID_SCHEMA,
    broker.LimitReached: INVALID_SCHEMA,
    broker.AccessDenied: 40301,
    msgspec.MsgspecError: INVALID_SCHEMA,
    UnicodeDecodeError: INVALID_SCHEMA,
}
"""Codes of errors whose status is not specific enough; looked up by the error's class, then by its bases."""


class RegistryError(HttpError):
    """A refusal with one of the codes above."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code // 100, str(code), message)


def registry_error(error: Exception) -> HttpReply:
    """One of HTTP's `EXPECTED_ERRORS` in the registry's format."""
    plain = error_reply(error)
    code = _code(error, plain.status)
    status = code // 100 if code > 999 else code
    body = ErrorBody(code, str(error)[:MAX_MESSAGE])
    return HttpReply(status, document(body), CONTENT_TYPE, plain.headers)


def _code(error: Exception, status: int) -> int:
    if isinstance(error, RegistryError):
        return int(error.code)
    if isinstance(error, broker.SchemaNotFound):
        return SUBJECT_NOT_FOUND if error.version is None else VERSION_NOT_FOUND
    known = next((CODE[kind] for kind in type(error).__mro__ if kind in CODE), status)
    return INTERNAL if known == 500 else known
