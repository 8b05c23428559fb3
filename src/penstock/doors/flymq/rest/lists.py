"""Lists as streamed replies, so that a long one takes no longer turns than a short one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from penstock.doors.http.replies import JSON, Pieces, StreamedReply

AT_ONCE: Final = 5  # values in one piece; each may have a thousand partitions


def list_reply(values: Iterable[Any], before: bytes = b"[", after: bytes = b"]\n") -> StreamedReply:
    """A JSON list of these values, which are consumed while it is sent."""
    return StreamedReply(Pieces(_pieces(values, before, after)), JSON)


def _pieces(values: Iterable[Any], before: bytes, after: bytes) -> Iterator[bytes]:
    remaining, separator = iter(values), before
    while found := list(islice(remaining, AT_ONCE)):
        yield separator + b",".join([msgspec.json.encode(value) for value in found])
        separator = b","
    yield (before if separator == before else b"") + after
