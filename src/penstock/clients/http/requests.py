"""Requests to the administration API: functions that make a `RequestSpec` from plain arguments."""

from __future__ import annotations

from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock.clients._core.requests import RequestSpec, nothing
from penstock.clients.http.binding import HttpRequest
from penstock.clients.http.errors import BadReply
from penstock.typed_decoding import decode_json

T = TypeVar("T")

ROOT: Final = "/api/v1"
_IDEMPOTENT: Final = ("GET", "PUT")


def call(
    method: str,
    *path: str,
    reply: type[T],
    body: Any = None,
    query: dict[str, Any] | None = None,
    idempotent: bool | None = None,
) -> RequestSpec[T]:
    """A request to a path of the API, given as its parts, with a JSON document of type `reply` as the reply. By
    default, idempotent methods are retried if the connection breaks; `idempotent` overrides this."""
    repeatable = method in _IDEMPOTENT if idempotent is None else idempotent
    return RequestSpec(
        _request(method, path, body, query),
        lambda document: _decoded(document, reply),
        idempotent=repeatable,
        changes=repeatable and method != "GET",
    )


def change(method: str, *path: str, body: Any = None, query: dict[str, Any] | None = None) -> RequestSpec[None]:
    """`call` for requests whose reply only confirms."""
    repeatable = method in _IDEMPOTENT
    return RequestSpec(_request(method, path, body, query), nothing, idempotent=repeatable, changes=repeatable)


def raw(
    method: str, *path: str, body: Any = None, accept: str, idempotent: bool = False, timeout: float | None = None
) -> RequestSpec[bytes]:
    """`call` for replies of another content type, returned as bytes."""
    return RequestSpec(
        _request(method, path, body, None, accept), lambda data: data, idempotent=idempotent, timeout=timeout
    )


def _request(
    method: str, path: tuple[str, ...], body: Any, query: dict[str, Any] | None, accept: str = "application/json"
) -> HttpRequest:
    given = {name: value for name, value in (query or {}).items() if value is not None}
    target = ROOT + "".join([f"/{quote(part, safe='')}" for part in path]) + (f"?{urlencode(given)}" if given else "")
    return HttpRequest(method, target, b"" if body is None else msgspec.json.encode(body), accept)


def _decoded(document: bytes, kind: type[T]) -> T:
    try:
        return decode_json(document, kind)
    except msgspec.MsgspecError as error:
        raise BadReply(f"The server sent an unreadable document: {error}") from error
