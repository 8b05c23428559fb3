"""The typed table of a topic with a schema: next to the topic's table, with a column for each field of the schema. It
is derived from the topic's table: records that it lacks are added.

Each commit records the end offset of each partition, under the same application ids as in the topic's table. So work
killed before a commit is repeated, and work killed after it is found complete. A value that matches no version of the
schema is a row too, with the raw value and the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

from penstock.broker.schemas.schema import Schema
from penstock.log.tables.commit import at_once
from penstock.log.tables.errors import not_written
from penstock.log.tables.location import TableRef, typed_ref
from penstock.log.tables.maintenance import CHECKPOINT_EVERY
from penstock.log.tables.part_reader import FAILURES
from penstock.log.tables.store import TableStore
from penstock.log.tables.table import Table, app_id
from penstock.log.tables.table_history import TableHistory
from penstock.workers.tables.typed_columns import RECORD, plain_type
from penstock.workers.tables.typed_values import Reader

logger = logging.getLogger(__name__)

ROWS: Final = 100_000  # per commit
BYTES: Final = 64 << 20  # of values, per commit
READ: Final = ("offset", "timestamp", "key", "value", "expires", "door")
HIDDEN: Final = "penstock-hidden"  # app id: a checksum of the removed records
COMPACT_FILES: Final = 16
NO_CHECKPOINT: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
CONFIGURATION: Final = {"delta.logRetentionDuration": "interval 7 days"}

Hidden = Mapping[int, Sequence[int]]
"""By partition: the offset below which all records are removed, followed by the offsets of single removed records."""


def keep_up(
    ref: TableRef, schemas: Sequence[Schema], hidden: Hidden, *, rest: Callable[[], None] = at_once
) -> dict[int, int]:
    """Add the records that the topic's table has and the typed one lacks. Returns the end offset of each partition.
    Raises LogError; what was committed before stays."""
    raw = Table.open(ref)
    if raw is None or not schemas:
        return {}
    typed = TypedTable(ref)
    reader = Reader(schemas)
    for number, end in raw.ends().items():
        extents = raw.extents(number)
        below = max(typed.end(number), extents[0].first if extents else end, _below(hidden, number))
        if below >= end:
            continue
        gone = frozenset(hidden.get(number, ())[1:])
        for batches, upto in portions(raw.read(number, below, end, READ), below):
            rest()
            typed.append(number, _rows(number, batches, reader, typed.kind, gone), upto)
    return {number: typed.end(number) for number in raw.ends()}


def take_out(ref: TableRef, hidden: Hidden) -> None:
    """Delete records that were removed from the topic, by retention or explicitly."""
    typed = TypedTable(ref)
    mark = crc32(repr(sorted((number, list(offsets)) for number, offsets in hidden.items())).encode())
    if typed.delta is None or typed.delta.transaction_version(HIDDEN) == mark:
        return
    conditions = []
    for number, (below, *single) in hidden.items():
        rows = [f"_offset < {below}"] if below else []
        rows += [f"_offset IN ({', '.join(map(str, single))})"] if single else []
        if rows:
            conditions.append(f"(_partition = {number} AND ({' OR '.join(rows)}))")
    if conditions:
        properties = CommitProperties(app_transactions=[Transaction(HIDDEN, mark)])
        try:
            typed.delta.delete(" OR ".join(conditions), commit_properties=properties)
        except FAILURES as error:
            raise not_written(typed.ref, error) from error


def tidy(ref: TableRef, keep_seconds: float, now: int, history: TableHistory) -> None:
    """Compact small files, and remove files that no version within `keep_seconds` uses, when that is due. `now` is in
    µs."""
    typed = TypedTable(ref)
    if typed.delta is None:
        return
    try:
        if len(typed.delta.file_uris()) >= COMPACT_FILES:
            typed.delta.optimize.compact()
        due = history.due(now, int(keep_seconds * 1_000_000))
        if due:
            hours = max(int(keep_seconds // 3600), 1)
            typed.delta.vacuum(hours, enforce_retention_duration=False, dry_run=False)
        if due or typed.delta.version() - history.checkpoint >= CHECKPOINT_EVERY:
            typed.delta.create_checkpoint()
            typed.delta.cleanup_metadata()
            history.checkpoint = typed.delta.version()
        if due:
            history.swept(now)
    except FAILURES as error:
        raise not_written(typed.ref, error) from error


class TypedTable:
    """The newest version of a typed table, for the only process that changes it."""

    def __init__(self, ref: TableRef) -> None:
        self.ref = typed_ref(ref)
        self._store = TableStore(self.ref)
        self._store.mend()
        self.delta: DeltaTable | None = None
        try:
            self.delta = DeltaTable(self._store.uri, storage_options=self._store.options)
        except TableNotFoundError:
            pass
        except FAILURES as error:
            raise not_written(self.ref, error) from error
        self._ends: dict[int, int] = {}
        self._synced = set() if self.delta is None else set(pa.table(self.delta.get_add_actions())["path"].to_pylist())

    @property
    def kind(self) -> pa.StructType | None:
        """The schema's columns in the table; None if there is no table yet."""
        if self.delta is None:
            return None
        fields = pa.schema(self.delta.schema().to_arrow())
        return pa.struct([pa.field(it.name, plain_type(it.type)) for it in fields if it.name not in RECORD.names])

    def end(self, partition: int) -> int:
        if partition not in self._ends:
            known = None if self.delta is None else self.delta.transaction_version(app_id(partition))
            self._ends[partition] = known or 0
        return self._ends[partition]

    def append(self, partition: int, rows: pa.Table, end: int) -> None:
        try:
            self._store.prepare()
            write_deltalake(
                self._store.uri if self.delta is None else self.delta,
                rows,
                mode="append",
                schema_mode="merge",
                partition_by=["_partition"],
                name=self.ref.name,
                configuration=CONFIGURATION,
                storage_options=self._store.options,
                commit_properties=CommitProperties(app_transactions=[Transaction(app_id(partition), end)]),
                post_commithook_properties=NO_CHECKPOINT,
            )
            self.delta = DeltaTable(self._store.uri, storage_options=self._store.options)
            self._sync()
        except FAILURES as error:
            raise not_written(self.ref, error) from error
        self._ends[partition] = end

    def _sync(self) -> None:
        """Make written data survive a power failure. A failure before that leaves files that `mend` sets aside."""
        assert self.delta is not None
        added = pa.table(self.delta.get_add_actions())["path"].to_pylist()
        self._store.sync([path for path in added if path not in self._synced])
        self._synced.update(added)
        self._store.sync_log(self.delta.version())


def portions(batches: Iterator[pa.RecordBatch], first: int) -> Iterator[tuple[list[pa.RecordBatch], int]]:
    """Batches for one commit each, with their end offset."""
    taken: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        taken.append(batch)
        rows += len(batch)
        size += batch.nbytes
        first += len(batch)
        if rows >= ROWS or size >= BYTES:
            yield taken, first
            taken, rows, size = [], 0, 0
    if taken:
        yield taken, first


def _rows(
    partition: int, batches: Sequence[pa.RecordBatch], reader: Reader, known: pa.StructType | None, gone: frozenset[int]
) -> pa.Table:
    kind = reader.columns(known)
    schema = pa.schema([*RECORD, *kind])
    return pa.Table.from_batches([_typed(partition, batch, reader, kind, gone, schema) for batch in batches], schema)


def _typed(
    partition: int, batch: pa.RecordBatch, reader: Reader, kind: pa.StructType, gone: frozenset[int], schema: pa.Schema
) -> pa.RecordBatch:
    if gone:
        batch = batch.filter(pc.invert(pc.is_in(batch["offset"], pa.array(sorted(gone), pa.int64()))))
    stamps = batch["timestamp"].cast(pa.timestamp("us", "UTC"))
    values = batch["value"].cast(pa.binary())
    found = reader.read(values, stamps.cast(pa.int64()).to_pylist(), kind)
    failed = pa.array([error is not None for error in found.errors], pa.bool_())
    arrays = [
        pa.array([partition] * len(batch), pa.int32()),
        batch["offset"].cast(pa.int64()),
        stamps,
        batch["key"].cast(pa.binary()),
        batch["expires"].cast(pa.timestamp("us", "UTC")),
        pa.array(found.versions, pa.int32()),
        pa.array(found.errors, pa.string()),
        pc.if_else(failed, values, pa.scalar(None, pa.binary())),
        batch["door"].cast(pa.string()),
        *(pc.struct_field(found.rows, [index]) for index in range(kind.num_fields)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _below(hidden: Hidden, partition: int) -> int:
    known = hidden.get(partition, ())
    return known[0] if known else 0
