"""The interface to a log for programs outside the broker, above all Spark: by topic, partition and offset, in Arrow
batches.

Two implementations: `penstock.flight.client` connects to a broker, `penstock.flight.directory` reads a data directory
that no broker uses. `penstock.flight.connect` chooses between them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.log.engine import Bounds

if TYPE_CHECKING:
    import pyarrow as pa


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class SchemaText(NamedTuple):
    """A version of a schema: its language (`json`, `avro`, `protobuf`), its text, its number, and the id that
    serializers put before values."""

    format: str
    definition: str
    version: int
    id: int


class TableInfo(NamedTuple):
    """The table of a topic: how to open it, and the end offset of each partition in it (exclusive)."""

    url: str
    options: dict[str, str]  # storage options of deltalake
    topic: int  # the topic's id
    ends: dict[int, int]
    now: int = 0  # µs: the time for which visibility was determined
    horizon: int = 0  # µs: records stored at or before this time have expired
    gone_below: dict[int, int] = {}  # noqa: RUF012 - never changed; by partition: all offsets below were removed
    gone: dict[int, tuple[int, ...]] = {}  # noqa: RUF012 - and these
    typed: bool = False  # the typed table of a topic with a schema


class Staged(NamedTuple):
    ref: str
    rows: int


class Published(NamedTuple):
    rows: int
    repeated: bool  # it had been published before; nothing was done


class Log(Protocol):
    """Every method may raise one of `penstock.flight.errors`."""

    stale: bool
    """Whether the last bounds came from a standby, which may lag behind the log."""

    def topics(self) -> dict[str, int]:
        """Name → number of partitions."""

    def bounds(self, topics: Collection[str]) -> dict[TopicPartition, Bounds]:
        """The bounds of each partition. Topics that do not exist are left out."""

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is not older than this time (µs since 1970); None if there is none."""

    def fitting(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], max_bytes: int
    ) -> dict[TopicPartition, int]:
        """The end offsets of about `max_bytes` in all partitions together, shared in proportion to their backlogs."""

    def read(self, tp: TopicPartition, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The visible records only. Raises OffsetsLost if `start` is below the first offset that exists."""

    def schema(self, subject: str, version: int | None = None, *, with_id: bool = False) -> SchemaText:
        """A version; the latest if none is given. The id may be 0 without `with_id`, which older brokers refuse."""

    def table(self, topic: str) -> TableInfo | None:
        """The topic's table, or the typed table of this name; None if there is none yet."""

    def stage(
        self,
        app: str,
        batch: int,
        task: str,
        topic: str | None,
        batches: Iterator[pa.RecordBatch],
        schema: pa.Schema,
    ) -> Staged:
        """Send records to the log without making them visible."""

    def publish(self, app: str, batch: int, refs: Sequence[str]) -> Published:
        """Make all records staged under these refs visible. Idempotent."""

    def discard(self, app: str, batch: int, refs: Sequence[str]) -> None: ...

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offsets of a group, so that its lag can be monitored."""

    def close(self) -> None: ...
