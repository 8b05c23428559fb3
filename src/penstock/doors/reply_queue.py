"""The replies of one connection, in order, each behind the commit that it depends on.

A reply is sent as soon as it and all earlier ones are ready; replies that are ready together are sent together. Waiting
costs one callback per commit group, not per reply. The session encodes the replies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from penstock.log.engine import COMMITTED, OPEN, CommitGroup

OnFailure: TypeAlias = Callable[[Exception], bytes]
"""The bytes to send instead if the commit fails. Must not raise."""


_Waiting: TypeAlias = tuple[CommitGroup | None, bytes, OnFailure | None, int]  # int: other bytes that it holds


class ReplyQueue:
    """`on_progress` is called after a commit has released replies, so that the session can continue; `on_error` if
    sending them failed."""

    __slots__ = (
        *("_also_watched", "_discarded", "_on_done", "_on_error", "_on_progress", "_ready", "_send", "_watched"),
        *("held_bytes", "waiting"),
    )

    def __init__(
        self,
        send: Callable[[bytes], None],
        on_progress: Callable[[], None] | None = None,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._send = send
        self._on_progress = on_progress
        self._on_error = on_error
        self._ready: list[bytes] = []  # to be sent now, in this order
        self.waiting: deque[_Waiting] = deque()  # the first one blocks all others
        self._watched: CommitGroup | None = None  # `_done` is called for the group of the first reply that waited,
        self._also_watched: set[CommitGroup] = set()  # and for other groups while one waits
        self._on_done = self._done  # bound once
        self.held_bytes = 0  # of unsent replies, and of the requests they keep in memory
        self._discarded = False

    @property
    def blocked(self) -> bool:
        """Whether a reply is waiting for a commit."""
        if self.waiting:
            self._advance()
        return bool(self.waiting)

    @property
    def empty(self) -> bool:
        return not self._ready and not self.waiting

    def enqueue(
        self,
        data: bytes,
        after: CommitGroup | None = None,
        on_failure: OnFailure | None = None,
        holds: int = 0,
    ) -> None:
        """Add a reply that is valid once the group `after` is committed; None: it only keeps its order. `holds`: bytes
        of the request that stay in memory until then."""
        if self._discarded:
            return
        if not self.waiting and (after is None or after.state is COMMITTED):
            self.held_bytes += len(data)
            self._ready.append(data)
            return
        self.held_bytes += len(data) + holds
        self.waiting.append((after, data, on_failure, holds))
        if after is not None and after.state is OPEN:
            if len(self.waiting) == 1:
                self._watched = after
                after.on_done(self._on_done)
            elif after is not self._watched and after not in self._also_watched:
                self._also_watched.add(after)
                after.on_done(self._on_done)
        elif len(self.waiting) == 1:
            self._advance()

    def flush(self) -> None:
        """Send everything that is ready, in one piece."""
        if self.waiting:
            group = self.waiting[0][0]
            if group is None or group.state is not OPEN:
                self._advance()
        if ready := self._ready:
            data = ready[0] if len(ready) == 1 else b"".join(ready)
            ready.clear()
            self.held_bytes -= len(data)
            if data:
                self._send(data)

    def discard(self) -> None:
        """Drop everything: the connection is lost."""
        self._discarded = True
        self._ready.clear()
        self.waiting.clear()
        self.held_bytes = 0

    def _advance(self) -> None:
        waiting = self.waiting
        while waiting:
            group, data, on_failure, holds = waiting[0]
            if group is not None and group.state is not COMMITTED:
                if group.state is OPEN:
                    return
                self.held_bytes -= len(data)
                if on_failure is not None and group.error is not None:
                    data = on_failure(group.error)
                self.held_bytes += len(data)
            self.held_bytes -= holds
            waiting.popleft()
            self._ready.append(data)

    def _release(self, group: CommitGroup) -> None:
        """Send what this group held up."""
        waiting = self.waiting
        if len(waiting) == 1 and waiting[0][0] is group and group.state is COMMITTED and not self._ready:
            _, data, _, holds = waiting.popleft()  # the only request of a client that waits for each reply
            self.held_bytes -= len(data) + holds
            if data:
                self._send(data)
        else:
            self.flush()

    def _done(self, group: CommitGroup) -> None:
        if self._also_watched:
            self._also_watched.discard(group)
        if self._discarded:
            return
        try:
            self._release(group)
        except Exception as error:
            if self._on_error is None:
                raise
            self._on_error(error)
            return
        if self._on_progress is not None:
            self._on_progress()
