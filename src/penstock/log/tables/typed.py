"""The typed table beside the table of a topic, for readers. The table worker writes it."""

from __future__ import annotations

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from penstock.log.tables.errors import plain, unreadable
from penstock.log.tables.location import TableRef
from penstock.log.tables.part_reader import FAILURES
from penstock.log.tables.store import TableStore
from penstock.log.tables.table import app_id


def open_delta(ref: TableRef) -> DeltaTable | None:
    """The newest version, or None if there is none; of the typed table, with its own `ref`, as of any other. Raises
    TableUnreadable."""
    store = TableStore(ref)
    try:
        return DeltaTable(store.uri, storage_options=store.options)
    except TableNotFoundError:
        return None
    except FAILURES as error:
        raise unreadable(ref, plain(error)) from error


def typed_ends(ref: TableRef, partitions: int) -> dict[int, int] | None:
    """The end offset of each partition in the newest version; None if there is none. Raises TableUnreadable."""
    delta = open_delta(ref)
    if delta is None:
        return None
    ends = {number: delta.transaction_version(app_id(number)) for number in range(partitions)}
    return {number: end for number, end in ends.items() if end is not None}
