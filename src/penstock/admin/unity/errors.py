"""Errors in Unity Catalog's formats: one for catalogs, schemas and tables, one for the part for Delta tables."""

from __future__ import annotations

from typing import Final

from penstock.admin.unity.messages import DeltaErrorBody, DeltaProblem, ErrorBody, ErrorDetail
from penstock.broker import errors as broker
from penstock.doors.http.errors import MAX_MESSAGE, HttpError, error_reply
from penstock.doors.http.replies import JSON, HttpReply, document

DELTA: Final = "/api/2.1/unity-catalog/delta/"
READ_ONLY: Final = (
    "this catalog is read-only: its tables are those of topics, which are written through the broker's protocols and "
    "changed by `penstock topic`"
)

CODE: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    409: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
DELTA_TYPE: Final = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "PermissionDeniedException",
    404: "NotFoundException",
    405: "NotImplementedException",
    429: "TooManyRequestsException",
}
_NO_TABLE: Final = (broker.TableNotFound, broker.TopicNotFound, broker.TypedTableNotFound)


class CatalogNotFound(HttpError):
    def __init__(self, name: str) -> None:
        super().__init__(404, "catalog_not_found", f"there is no catalog '{name[:200]}'")


class SchemaNotFound(HttpError):
    def __init__(self, name: str) -> None:
        super().__init__(404, "schema_not_found", f"there is no schema '{name[:200]}'")


class NotVended(HttpError):
    def __init__(self) -> None:
        super().__init__(
            *(409, "credentials_not_given"),
            "the broker gives nobody its credentials for the object store: readers need their own",
        )


class ForReading(HttpError):
    def __init__(self) -> None:
        super().__init__(403, "read_only", READ_ONLY)


def unity_error(path: str, error: Exception) -> HttpReply:
    """One of HTTP's `EXPECTED_ERRORS` in the format of this path."""
    plain = error_reply(error)
    missing = isinstance(error, _NO_TABLE)
    status = 404 if missing else plain.status
    message = (READ_ONLY if status == 405 else str(error))[:MAX_MESSAGE]
    if path.startswith(DELTA):
        kind = "NoSuchTableException" if missing else DELTA_TYPE.get(status, "InternalServerErrorException")
        body = document(DeltaErrorBody(DeltaProblem(message, kind, status)))
    else:
        code = CODE.get(status, "INTERNAL")
        reason = "TABLE_NOT_FOUND" if missing else getattr(error, "code", code).upper()
        body = document(ErrorBody(code, message, [ErrorDetail(reason)]))
    return HttpReply(status, body, JSON, plain.headers)
