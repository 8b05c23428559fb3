"""Administration requests as procedures: a single request, or all pages of a list."""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.clients._core.procedure import Procedure
from penstock.clients._core.requests import RequestSpec, result_of
from penstock.clients.http.requests import call
from penstock.connection import views as v

T = TypeVar("T")


def ask(spec: RequestSpec[T]) -> Procedure[T]:
    (outcome,) = yield [spec]
    return result_of(outcome)  # type: ignore[no-any-return]


def all_pages(kind: type[T], *path: str, **query: Any) -> Procedure[list[T]]:
    """The items of all pages."""
    found: list[T] = []
    after: str | None = ""
    while after is not None:
        page = yield from ask(call("GET", *path, reply=v.Page[kind], query={"limit": 1000, "after": after, **query}))  # type: ignore[valid-type]
        found += page.items
        after = page.next
    return found
