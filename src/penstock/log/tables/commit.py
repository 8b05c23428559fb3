"""A change of a table: files that come and files that go, and how far each partition now reaches, all at once."""

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
from penstock.log.tables.store import LOG, Store
from penstock.log.tables.table import CHECKSUM, PARTITIONS, Table, app_id, owner_app_id

# How long checkpoints of the table's log name files that are gone: `maintenance.clean` does not need it.
_CONFIGURATION: Final = {"delta.deletedFileRetentionDuration": "interval 1 days"}
# Checkpoints are made by `maintenance.clean`, which syncs them before anything relies on them.
_NO_CHECKPOINT: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def at_once() -> None:
    """No rest between two batches."""


def open_to_change(ref: TableRef) -> Table | None:
    """The table, or None if there is none yet, for the one process that changes it."""
    Store(ref).mend()
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
    """Make the next version of `table`, or the first one of a new table. When this returns it survives a loss of power.

    Another process that made any change since `table` was opened makes this fail, and then the table is as that process
    left it: every change has a transaction of the same name (`CHECKSUM`), and the table's log takes one of two. So a
    writer that was replaced cannot slip in behind `refuse_fenced`. `same_records`: the change is a compaction, and
    readers of changes skip it.
    """
    refuse_fenced(ref, table)
    store = Store(ref) if table is None else table.store
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


def refuse_fenced(ref: TableRef, table: Table | None) -> None:
    """Raises TableFenced if a later owner of the writer's journal has changed the table."""
    if ref.writer is not None and table is not None:
        known = table.delta.transaction_version(owner_app_id(ref.writer.journal)) or 0
        if known > ref.writer.term:
            raise fenced(ref, known)


def read_back(store: Store, parts: Sequence[Part], rest: Callable[[], None] = at_once) -> None:
    """Read files that were just written, from the disk as far as that can be had, and compare every record with the
    checksums that were made before they were written. Raises TableDamaged."""
    paths = [part.path for part in parts]
    store.sync(paths)
    store.drop_cached(paths)
    for part in parts:
        with PartReader(store, table_file(part)) as reader:
            for group in reader.groups:
                for _ in reader.batches(group, STORED.names):
                    rest()


def check_committed(ref: TableRef, ends: Mapping[int, int]) -> None:
    """Open the table as everybody will, which compares it with the checksum of the commit. Raises TableUnreadable."""
    table = Table.open(ref)
    reaches = {} if table is None else table.ends()
    for number, end in ends.items():
        if reaches.get(number, 0) < end:
            reason = f"partition {number} ends at offset {reaches.get(number, 0)} after a commit up to {end}"
            raise unreadable(ref, reason)


def _transactions(
    ref: TableRef, table: Table | None, added: Sequence[Part], removed: Sequence[str], ends: Mapping[int, int]
) -> list[Transaction]:
    """The ends that move, and the checksum of all that the new version says."""
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
    """A part as the table's log will name it."""
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
