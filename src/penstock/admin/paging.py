"""Pages of lists: a number of items after a name, and the name after which the next page begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Final, Generic, TypeVar

import msgspec
from msgspec import Meta

MAX_PAGE: Final = 1000

T = TypeVar("T")

Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE, description="The most items of one page.")]
After = Annotated[str, Meta(description="`next` of the page before; empty: the first page.")]


class PageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query parameters of a list."""

    limit: Limit = 100
    after: After = ""


class Page(msgspec.Struct, Generic[T]):
    """A part of a list, ordered by the names used in `after`."""

    items: list[T]
    next: str | None  # for `after`; None: the end


def cut(found: Iterable[T], key: Callable[[T], str], query: PageQuery) -> Page[T]:
    """The requested page. Names are ordered by their characters."""
    ordered = sorted(found, key=key)
    rest = [item for item in ordered if key(item) > query.after] if query.after else ordered
    items = rest[: query.limit]
    return Page(items, key(items[-1]) if len(rest) > len(items) else None)


def number_of(text: str) -> int | None:
    """A number in a path or a cursor; None if it is invalid."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def numbered(number: int) -> str:
    """A number as a cursor, zero-padded so that the order is numeric."""
    return f"{number:020d}"
