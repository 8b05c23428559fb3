"""Replies to HTTP requests: at once, after a commit, after work off the loop, or in pieces.

The session turns them into bytes. Nothing here knows which request is answered."""

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
    """A reply that holds once the group is committed, and is not given before."""

    group: CommitGroup
    reply: HttpReply


class _Waiting:
    """The type of `WAITING`."""


WAITING: Final = _Waiting()
"""A source has nothing now. It calls `wake` when it has."""

Piece: TypeAlias = bytes | Deferred[Any, "bytes | None"] | _Waiting | None
"""The next bytes, or work that leads to them, or `WAITING`; None: that was all. Empty bytes: ask again."""


class ReplySource(Protocol):
    """The body of a streamed reply. It is asked for a piece when the client has taken those before it."""

    endless: bool  # has no end of its own: it ends when the client sends no more, or the broker stops

    def open(self, wake: Callable[[], None]) -> None:
        """Called once, before the first `pull`."""

    def pull(self) -> Piece:
        """An error of `EXPECTED_ERRORS`, here or of the work, ends the reply: the connection is closed without the end
        of the body, so that no client takes what it has for all."""

    def close(self) -> None:
        """Called once, after the last `pull`, also if the connection is gone."""


@dataclass(frozen=True, slots=True)
class StreamedReply:
    """A reply in pieces, chunked. A request with HEAD gets its head only."""

    source: ReplySource
    content_type: str = JSON_LINES
    headers: tuple[tuple[str, str], ...] = ()
    status: int = 200


Outcome: TypeAlias = HttpReply | PendingHttpReply | StreamedReply | Deferred[Any, Any]
"""A reply, or what leads to one: a commit to wait for, or work that takes its time and has an outcome itself."""


class Pieces:
    """A source of pieces that are there, or are made one by one, each quickly."""

    endless = False

    def __init__(self, pieces: Any) -> None:
        self._pieces = iter(pieces)

    def open(self, wake: Callable[[], None]) -> None:
        """Nothing to wait for."""

    def pull(self) -> bytes | None:
        return next(self._pieces, None)

    def close(self) -> None:
        """Nothing to give back."""


def document(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def json_reply(value: Any, status: int = 200) -> HttpReply:
    return HttpReply(status, document(value), JSON)


def after_commit(group: CommitGroup | None, reply: HttpReply) -> HttpReply | PendingHttpReply:
    """The reply, once the group is committed that it depends on."""
    return reply if group is None else PendingHttpReply(group, reply)


def done(group: CommitGroup | None) -> HttpReply | PendingHttpReply:
    """Nothing but that it is done."""
    return after_commit(group, HttpReply(200, b"{}\n", JSON))
