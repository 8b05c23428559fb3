"""The catalog interface for statements: the streams of one caller as of one point in time, and two ways to change them.

A catalog is made for one statement of one caller. It raises errors of the broker, which go to the caller unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from penstock.broker.queries.declarations import Declarations
from penstock.broker.queries.query import Declared

if TYPE_CHECKING:
    import pyarrow as pa


class PartitionRange(NamedTuple):
    """Existing and committed offsets of a partition, from `start` (inclusive) to `end` (exclusive)."""

    partition: int
    start: int
    end: int


class Stream(Protocol):
    """A topic as of the time it was opened: records appended later are not included, however often it is read."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> str:
        """Unique to the topic, even if it is deleted and created again: cached knowledge about its records is kept
        under it.
        """

    @property
    def created(self) -> int:
        """The position of the event that created the topic: it exists at a position P if `created < P`. -1: unknown,
        treated as always existing.
        """

    @property
    def declarations(self) -> Declarations:
        """Their positions are those of the events that declared or dropped the table, so they apply at P if `position <
        P`.
        """

    @property
    def partitions(self) -> Sequence[PartitionRange]: ...

    @property
    def dense(self) -> bool:
        """Whether no record in the spans has expired or was removed, so that their number is the sum of `end -
        start`.
        """

    def first_position(self) -> int:
        """The position of the oldest remaining record, if retention has removed earlier ones; else 0."""

    def batches(
        self, columns: Sequence[str], position: int | None, start: Mapping[int, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The visible records, one partition after the other and in order of offset, with these columns of
        `penstock.log.arrow.STORED`. If `position` is given, only records before it; `start` gives the first offset for
        some partitions. Each call starts over; calls may run concurrently in several threads.
        """


@runtime_checkable
class Typed(Protocol):
    """The part of a stream that only a typed one has."""

    def schema(self) -> pa.Schema:
        """Its columns. Raises TableNotFound if there is no table yet."""


class TypedStream(Stream, Typed, Protocol):
    """The typed table of a topic. `batches` takes columns of its `schema`, and no `start`. It can only be read."""


class Catalog(Protocol):
    def head(self) -> int:
        """The global position up to which everything is committed: what the statement sees."""

    def refresh(self) -> None:
        """Also see what was committed since: for a statement that is retried because `append` returned None."""

    def names(self) -> list[str]:
        """The streams that the caller may read, sorted."""

    def open(self, names: Sequence[str]) -> dict[str, Stream]:
        """The streams with these names that exist. Raises AccessDenied."""

    def declare(self, name: str, declared: Declared | None, *, create: bool) -> int:
        """Declare how a stream is read as a table, or drop its declaration (None). With `create`, a missing stream is
        created. The catalog sets `declared.position`. Returns the position after the change.
        """

    def append(
        self, name: str, events: Sequence[bytes], keys: Sequence[bytes | None] | None, expected: int | None
    ) -> int | None:
        """Append events to partition 0, all or none; returns the position after them. None, without appending, if the
        partition no longer ends at offset `expected`.
        """

    def break_glass(self, reason: str) -> None:
        """Record the caller's reason for access, before the statement runs."""
