"""The replies of one connection, in order, each behind the commit or the read that it depends on.

A reply leaves as soon as it and all before it are ready; those that are ready together leave in one piece. Waiting
costs one callback for each commit group, not for each reply. What a reply says is the session's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from penstock.log.engine import COMMITTED, OPEN, CommitGroup

OnFailure: TypeAlias = Callable[[Exception], bytes]
"""What to send instead if the commit fails. Must not raise."""


class Slot:
    """A place in the order of replies, for one that is still being made."""

    __slots__ = ("_replies", "data")

    def __init__(self, replies: ReplyQueue) -> None:
        self._replies = replies
        self.data: bytes | None = None

    def fill(self, data: bytes) -> None:
        """Give the reply. It leaves with the next `flush`."""
        assert self.data is None, "a slot is filled once"
        self.data = data
        self._replies._filled(len(data))


_Waiting: TypeAlias = tuple[CommitGroup | None, bytes, OnFailure | None, int]  # the last: how much it holds


class ReplyQueue:
    """`on_progress` is called after a commit has let replies out, so that the session can go on."""

    __slots__ = ("_discarded", "_on_progress", "_ready", "_send", "_waiting", "_watched", "held_bytes")

    def __init__(self, send: Callable[[bytes], None], on_progress: Callable[[], None] | None = None) -> None:
        self._send = send
        self._on_progress = on_progress
        self._ready: list[bytes] = []  # may leave now, in this order
        self._waiting: deque[_Waiting | Slot] = deque()  # the first of them is what all others wait for
        self._watched: set[CommitGroup] = set()
        self.held_bytes = 0  # replies not sent yet, and what was said to be held by them
        self._discarded = False

    @property
    def blocked(self) -> bool:
        """Whether a reply is waiting for a commit or for its slot to be filled."""
        self._advance()
        return bool(self._waiting)

    @property
    def empty(self) -> bool:
        return not self._ready and not self._waiting

    def put(self, data: bytes) -> None:
        """A reply that depends on nothing."""
        self.put_after(None, data, None)

    def put_after(self, group: CommitGroup | None, data: bytes, on_failure: OnFailure | None, holds: int = 0) -> None:
        """A reply that is true once `group` is committed. `holds`: bytes of the request that memory keeps till then."""
        if self._discarded:
            return
        self.held_bytes += len(data) + holds
        self._waiting.append((group, data, on_failure, holds))
        if group is not None and group.state is OPEN:
            if group not in self._watched:
                self._watched.add(group)
                group.on_done(self._done)
        elif len(self._waiting) == 1:
            self._advance()

    def reserve(self) -> Slot:
        """The place of a reply that will be given later."""
        slot = Slot(self)
        if not self._discarded:
            self._waiting.append(slot)
        return slot

    def flush(self) -> None:
        """Send everything that is ready, as one."""
        if self._waiting:
            self._advance()
        if self._ready:
            data = self._ready[0] if len(self._ready) == 1 else b"".join(self._ready)
            self._ready.clear()
            self.held_bytes -= len(data)
            if data:
                self._send(data)

    def discard(self) -> None:
        """The connection is lost: nothing is sent any more."""
        self._discarded = True
        self._ready.clear()
        self._waiting.clear()
        self.held_bytes = 0

    def _advance(self) -> None:
        waiting = self._waiting
        while waiting:
            entry = waiting[0]
            if isinstance(entry, Slot):
                if entry.data is None:
                    return
                data = entry.data
            else:
                group, data, on_failure, holds = entry
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

    def _done(self, group: CommitGroup) -> None:
        self._watched.discard(group)
        if self._discarded:
            return
        self.flush()
        if self._on_progress is not None:
            self._on_progress()

    def _filled(self, size: int) -> None:
        if not self._discarded:
            self.held_bytes += size
