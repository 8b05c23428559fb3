"""Requests of commands to the administration API of a broker: over the network, or through its data directory, whether
the broker is running or not. `admin_target` chooses; `administration` implements the access through a data directory,
and imports the whole broker."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock.cli.admin_client import admin_client
from penstock.cli.explanation import explained
from penstock.cli.failure import fail
from penstock.cli.target import Target
from penstock.typed_decoding import decode_json

if TYPE_CHECKING:
    from penstock.cli.admin_target import AdminTarget
    from penstock.clients.http.client import Client

T = TypeVar("T")


def send(broker: AdminTarget, method: str, path: str, body: object = None) -> bytes:
    """The body of the reply. Ends the command if the request is refused."""
    data = b"" if body is None else msgspec.json.encode(body)
    if isinstance(broker, Target):
        return over_network(broker, method, path, data)
    from penstock.cli.administration import request

    return request(broker, method, path, data)


def over_network(target: Target, method: str, path: str, body: bytes = b"") -> bytes:
    """The same for a broker by its address, with the target's login."""
    from penstock.clients._core.errors import PenstockError

    try:
        return _exchange(target, method, path, body)
    except PenstockError as error:
        fail(explained(error, target))


def try_send(broker: AdminTarget, method: str, path: str) -> tuple[int, bytes] | None:
    """Status and body of the reply of a running broker, also if it is an error; None if none runs in the directory."""
    if not isinstance(broker, Target):
        from penstock.cli.administration import exchange_running

        return exchange_running(broker, method, path)
    from penstock.clients._core.errors import PenstockError
    from penstock.clients.http.errors import ReplyError

    try:
        return 200, _exchange(broker, method, path, b"")
    except ReplyError as error:
        return error.status, msgspec.json.encode({"error": {"code": error.code, "message": explained(error, broker)}})
    except PenstockError as error:
        fail(explained(error, broker))


@contextlib.contextmanager
def one_connection(broker: AdminTarget) -> Iterator[None]:
    """One connection, and one login, for all requests over the network in this block."""
    if not isinstance(broker, Target):
        yield
        return
    with admin_client(broker._replace(tenant=None), attempts=1) as client:
        _open.append(client)
        try:
            yield
        finally:
            _open.remove(client)


_open: list[Client] = []


def _exchange(target: Target, method: str, path: str, body: bytes) -> bytes:
    from penstock.clients._core.requests import RequestSpec
    from penstock.clients.http.binding import HttpRequest

    if target.tenant is not None and not re.search(r"[?&]tenant=", path):
        path += f"{'&' if '?' in path else '?'}{urlencode({'tenant': target.tenant})}"
    target = target._replace(tenant=None)  # the path has it
    spec = RequestSpec(HttpRequest(method, path, body), lambda data: data, idempotent=method == "GET")
    with contextlib.nullcontext(_open[-1]) if _open else admin_client(target, attempts=1) as client:
        reply: bytes = client.call(spec)
        return reply


def call(broker: AdminTarget, method: str, path: str, reply: type[T], body: object = None) -> T:
    """The reply, decoded."""
    return decode_json(send(broker, method, path, body), reply)


def all_of(broker: AdminTarget, path: str, kind: type[T]) -> list[T]:
    """All items of a list, page by page."""
    from penstock.admin.paging import MAX_PAGE, Page

    found: list[T] = []
    after: str | None = ""
    while after is not None:
        page = call(broker, "GET", f"{path}&{urlencode({'limit': MAX_PAGE, 'after': after})}", Page[kind])  # type: ignore[valid-type]
        found += page.items
        after = page.next
    return found


def path(*parts: str, **query: object) -> str:
    """An API path from unescaped names, with query parameters; those that are None are omitted."""
    given = {name: value for name, value in query.items() if value is not None}
    return "/api/v1" + "".join(f"/{quote(part, safe='')}" for part in parts) + f"?{urlencode(given, doseq=True)}"
