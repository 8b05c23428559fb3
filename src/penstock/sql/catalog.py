"""The catalog interface of statements: the streams of one caller as of one moment, and two ways to change them.

A catalog is made for one statement of one caller. Whatever it refuses it raises as an error of `core`, and that goes to
the caller as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.broker.queries.declarations import Declarations
from penstock.broker.queries.query import Declared

if TYPE_CHECKING:
    import pyarrow as pa


class Span(NamedTuple):
    """Offsets of a partition that are there and committed: from `start` up to, but without, `end`."""

    partition: int
    start: int
    end: int


class Stream(Protocol):
    """A topic as it was when it was opened: what is appended later is not in it, however often it is read."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> str:
        """The same for the same topic only, also after it was removed and made again: what was learnt of its records is
        kept under it."""

    @property
    def created(self) -> int:
        """The position of the event that created the topic: at a position P it is there if `created < P`. -1: not
        known, it was always there."""

    @property
    def declarations(self) -> Declarations:
        """Their positions are those of the events that declared or dropped it, so they count at P if `position < P`."""

    @property
    def partitions(self) -> Sequence[Span]: ...

    @property
    def dense(self) -> bool:
        """No record in the spans has expired or was removed: their count is the sum of `end - start`."""

    def first_position(self) -> int:
        """The position of the oldest record that is kept, if earlier ones were removed by retention; else 0."""

    def batches(
        self, columns: Sequence[str], position: int | None, start: Mapping[int, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The live records of all partitions, one partition after the other and in order of offsets, with these columns
        of `penstock.log.arrow.STORED`; of a position below `position` only, if it is given; from the offsets in `start`
        on, of the partitions that are in it. Each call begins anew; calls may run side by side in several threads."""


class Catalog(Protocol):
    def head(self) -> int:
        """The global position up to which everything is committed: what the statement sees."""

    def refresh(self) -> None:
        """See what was committed since, too: for a statement that is tried again because `append` returned None."""

    def names(self) -> list[str]:
        """The streams that the caller may read, sorted."""

    def open(self, names: Sequence[str]) -> dict[str, Stream]:
        """The streams of these names that exist. Raises AccessDenied."""

    def declare(self, name: str, declared: Declared | None, *, create: bool) -> int:
        """Say how a stream is read as a table, or that it is none (None). The stream is created if it is not there and
        `create` says so. `declared.position` is filled in by the catalog. Returns the position behind it."""

    def append(
        self, name: str, events: Sequence[bytes], keys: Sequence[bytes | None] | None, expected: int | None
    ) -> int | None:
        """Append events to partition 0, all or none; returns the position behind them. None, and nothing is appended,
        if the partition does not end at offset `expected` any more."""

    def break_glass(self, reason: str) -> None:
        """The caller gives this reason for looking: to be noted before the statement is carried out."""
