"""A change of a table: adds and removes files, and advances the ends of partitions, atomically."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from deltalake import CommitProperties, PostCommitHookProperties, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from penstock.log.arrow import STORED
from penstock.log.tables.checksums import state_checksum
from penstock.log.tables.errors import fenced, not_written, unreadable
from penstock.log.tables.location import TableRef
from penstock.log.tables.part import PARTITION, Part
from penstock.log.tables.part_reader import FAILURES, PartReader, TableFile
from penstock.log.tables.store import LOG, TableStore
from penstock.log.tables.table import CHECKSUM, PARTITIONS, Table, app_id, owner_app_id

# How long checkpoints of the table's log list removed files: `maintenance.clean` does not need them.
_CONFIGURATION: Final = {"delta.deletedFileRetentionDuration": "interval 1 days"}
# `maintenance.clean` creates checkpoints, and syncs them before anything relies on them.
_NO_CHECKPOINT: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def at_once() -> None:
    """A `rest` that does nothing."""


def open_to_change(ref: TableRef) -> Table | None:
    """The table, or None if there is none yet, for the single process that changes it."""
    TableStore(ref).mend()
    return Table.open(ref)


def commit(
    ref: TableRef,
    table: Table | None,
    added: Sequence[Part],
    removed: Sequence[str] = (),
    ends: Mapping[int, int] | None = None,
    *,
    same_records: bool = False,
) -> None:
    """Commit the next version of `table`, or the first one of a new table. On return it survives a loss of power.

    If another process has changed the table since `table` was opened, this fails without an effect: every change has a
    transaction with the same name (`CHECKSUM`), and the table's log accepts only one of two concurrent ones. So a
    replaced writer cannot commit after `refuse_fenced`. `same_records`: the change is a compaction, and readers of
    changes skip it.
    """
    refuse_fenced(ref, table)
    store = TableStore(ref) if table is None else table.store
    now = int(time.time() * 1000)
    adds = [
        AddAction(part.path, part.bytes, {PARTITION: str(part.partition)}, now, not same_records, part.statistics())
        for part in added
    ]
    properties = CommitProperties(app_transactions=_transactions(ref, table, added, removed, ends or {}))
    schema = Schema.from_arrow(STORED)
    try:
        paths = [part.path for part in added]
        store.seal(paths)
        store.sync(paths)
        store.prepare(LOG)
        if table is None:
            create_table_with_add_actions(
                store.uri,
                schema,
                adds,
                partition_by=[PARTITION],
                name=ref.name,
                configuration=_CONFIGURATION,
                storage_options=store.options,
                commit_properties=properties,
                post_commithook_properties=_NO_CHECKPOINT,
            )
        else:
            if added:
                _add_columns(ref, table, schema)
            gone = [RemoveAction(path, not same_records, now, *_known(table, path)) for path in removed]
            table.delta.create_write_transaction(
                [*adds, *gone],
                "append",
                schema,
                [PARTITION],
                commit_properties=properties,
                post_commithook_properties=_NO_CHECKPOINT,
            )
        store.sync_log(0 if table is None else table.version)
    except FAILURES as error:
        raise not_written(ref, error) from error


def _add_columns(ref: TableRef, table: Table, schema: Schema) -> None:
    """Give a table of an earlier version the columns that it does not have: null in the files that it has."""
    known = {field.name for field in table.delta.schema().fields}
    new = [field for field in schema.fields if field.name not in known]
    if new:
        properties = CommitProperties(app_transactions=_transactions(ref, table, (), (), {}))
        table.delta.alter.add_columns(new, commit_properties=properties, post_commithook_properties=_NO_CHECKPOINT)


def refuse_fenced(ref: TableRef, table: Table | None) -> None:
    """Raise TableFenced if a later owner of the writer's journal has changed the table."""
    if ref.writer is not None and table is not None:
        known = table.delta.transaction_version(owner_app_id(ref.writer.journal)) or 0
        if known > ref.writer.term:
            raise fenced(ref, known)


def read_back(store: TableStore, parts: Sequence[Part], rest: Callable[[], None] = at_once) -> None:
    """Read files that were just written, from the disk if possible, and compare every record with the checksums from
    before the write. Raises TableDamaged."""
    paths = [part.path for part in parts]
    considerate = rest is not at_once  # a worker that is behind has no time for small steps
    if considerate:
        store.write_back(paths, rest)
    store.sync(paths)
    store.drop_cached(paths)
    if considerate:
        store.read_ahead(paths, rest)
    for part in parts:
        with PartReader(store, table_file(part)) as reader:
            for group in reader.groups:
                for _ in reader.batches(group, STORED.names):
                    rest()


def check_committed(ref: TableRef, ends: Mapping[int, int]) -> None:
    """Open the table like any reader, which verifies the checksum of the commit. Raises TableUnreadable."""
    table = Table.open(ref)
    reaches = {} if table is None else table.ends()
    for number, end in ends.items():
        if reaches.get(number, 0) < end:
            reason = f"partition {number} ends at offset {reaches.get(number, 0)} after a commit up to {end}"
            raise unreadable(ref, reason)


def _transactions(
    ref: TableRef, table: Table | None, added: Sequence[Part], removed: Sequence[str], ends: Mapping[int, int]
) -> list[Transaction]:
    """The ends that advance, and the checksum of the new version's metadata."""
    files = {file.path: file for number in table.partitions() for file in table.extents(number)} if table else {}
    files |= {part.path: table_file(part) for part in added}
    kept = [file for path, file in files.items() if path not in removed]
    reaches = {**(table.ends() if table else {}), **ends}
    checksum = [Transaction(CHECKSUM, state_checksum(kept, reaches))]
    if ref.writer is not None:
        checksum.append(Transaction(owner_app_id(ref.writer.journal), ref.writer.term))
    if not ends:
        return checksum
    known = (table.delta.transaction_version(PARTITIONS) if table else None) or 0
    count = max(known, max(ends) + 1)
    moved = [Transaction(app_id(number), end) for number, end in ends.items()]
    return [*moved, Transaction(PARTITIONS, count), *checksum]


def table_file(part: Part) -> TableFile:
    """A part as listed in the table's log."""
    rows = part.end - part.first
    return TableFile(
        part.path,
        part.partition,
        part.first,
        part.end,
        rows,
        part.bytes,
        part.max_timestamp,
        part.min_timestamp,
        part.lasting != rows,
    )


def _known(table: Table, path: str) -> tuple[int, dict[str, str | None]]:
    file = next(file for number in table.partitions() for file in table.extents(number) if file.path == path)
    return file.bytes, {PARTITION: str(file.partition)}
