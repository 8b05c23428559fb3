"""Declarations of a stream as a table, over time: the current one, and those ended by DROP TABLE.

At a position, the latest change before it is in effect: a declaration; nothing, so the stream shows its raw events; or
the DROP of a table that had created its stream, after which statements do not find it until it is created again. It is
then a new table, which begins at the end of the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.broker.queries.query import Declared

MAX_DROPPED: Final = 64  # dropped declarations remembered per stream
MAX_DROPPED_COLUMNS: Final = 4_096  # of all of them together


class Dropped(msgspec.Struct, frozen=True, omit_defaults=True):
    """A declaration that ended at a global position. Stored in events: fields may be added, never renamed or reused."""

    declared: Declared
    position: int


class TableState(NamedTuple):
    declared: Declared | None
    hidden: bool = False  # statements do not find the stream


class Declarations(NamedTuple):
    declared: Declared | None = None
    dropped: tuple[Dropped, ...] = ()  # in order

    def at(self, position: int | None) -> TableState:
        """The table that a statement sees at a position; None: now."""
        before = self if position is None else self.before(position)
        if before.declared is not None or not before.dropped:
            return TableState(before.declared)
        return TableState(None, before.dropped[-1].declared.owned)

    def before(self, position: int) -> Declarations:
        """The declarations as of a position."""
        declared = self.declared
        if declared is not None and declared.position >= position:
            declared = None
        for one in self.dropped:
            if one.declared.position < position <= one.position:
                declared = one.declared
        return Declarations(declared, tuple(one for one in self.dropped if one.position < position))

    def declare(self, declared: Declared, position: int, ends: Sequence[int]) -> Declarations:
        """`ends`: the end of each partition, which is where a table begins that is created again."""
        now = self.at(None)
        assert now.declared is None
        starts = tuple(ends) if now.hidden else ()
        declared = msgspec.structs.replace(declared, position=position, owned=now.hidden, starts=starts)
        return self._replace(declared=declared)

    def drop(self, position: int) -> Declarations:
        assert self.declared is not None
        dropped, columns = [Dropped(self.declared, position)], len(self.declared.columns)
        for one in reversed(self.dropped[1 - MAX_DROPPED :]):
            columns += len(one.declared.columns)
            if columns > MAX_DROPPED_COLUMNS:
                break
            dropped.append(one)
        return Declarations(None, tuple(reversed(dropped)))
