"""Replies to HTTP requests: immediate, after a commit, after work off the loop, or streamed.

The session encodes them. Nothing here depends on the request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from penstock.broker.runtime.executor import Deferred
from penstock.log.engine import CommitGroup

JSON: Final = "application/json"
JSON_LINES: Final = "application/x-ndjson"
EVENT_STREAM: Final = "text/event-stream"
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpReply:
    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


class PendingHttpReply(NamedTuple):
    """A reply that is sent after the group is committed."""

    group: CommitGroup
    reply: HttpReply


class _Waiting:
    """The type of `WAITING`."""


WAITING: Final = _Waiting()
"""A source has no data now. It calls `wake` when it has."""

Piece: TypeAlias = bytes | Deferred[Any, "bytes | None"] | _Waiting | None
"""The next bytes, or work that returns them, or `WAITING`; None: the end. Empty bytes: pull again."""


class ReplySource(Protocol):
    """The body of a streamed reply. `pull` is called when the client has received the earlier pieces."""

    endless: bool  # it ends only when the client sends no more, or the broker stops

    def open(self, wake: Callable[[], None]) -> None:
        """Called once, before the first `pull`."""

    def pull(self) -> Piece:
        """The next piece. An error of `EXPECTED_ERRORS`, here or in the work, ends the reply: the connection is closed
        without the end of the body, so that clients notice the truncation."""

    def close(self) -> None:
        """Called once, after the last `pull`, also if the connection is lost."""


@dataclass(frozen=True, slots=True)
class StreamedReply:
    """A streamed reply, with chunked encoding. For a HEAD request only the head is sent."""

    source: ReplySource
    content_type: str = JSON_LINES
    headers: tuple[tuple[str, str], ...] = ()
    status: int = 200


Outcome: TypeAlias = HttpReply | PendingHttpReply | StreamedReply | Deferred[Any, Any]
"""A reply, or something that results in one: a commit to wait for, or work whose result is an outcome itself."""


class Pieces:
    """A source from an iterable whose items are available without waiting."""

    endless = False

    def __init__(self, pieces: Any) -> None:
        self._pieces = iter(pieces)

    def open(self, wake: Callable[[], None]) -> None:
        """Nothing to wait for."""

    def pull(self) -> bytes | None:
        return next(self._pieces, None)

    def close(self) -> None:
        """Nothing to release."""


def document(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def json_reply(value: Any, status: int = 200) -> HttpReply:
    return HttpReply(status, document(value), JSON)


def after_commit(group: CommitGroup | None, reply: HttpReply) -> HttpReply | PendingHttpReply:
    """The reply, delayed until the group that it depends on is committed."""
    return reply if group is None else PendingHttpReply(group, reply)


def done(group: CommitGroup | None) -> HttpReply | PendingHttpReply:
    """An empty reply, after the group is committed."""
    return after_commit(group, HttpReply(200, b"{}\n", JSON))
