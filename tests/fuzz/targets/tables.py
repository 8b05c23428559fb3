"""Tables: whatever is in their log or their files, what is read is what was written, or a table is told as damaged."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pyarrow as pa
from tests.fuzz.targets.target import Target
from tests.log.tables.source import Source, stored

from penstock.log.errors import LogError
from penstock.log.tables.table import Table


class _Written:
    """A table of two commits, in a directory of its own, and the records in it."""

    def __init__(self) -> None:
        directory = tempfile.mkdtemp(prefix="penstock-fuzz-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        source = Source(Path(directory), file_bytes=16 << 10)
        source.fill(2, partitions=2)
        source.build_all()
        self.ref = source.ref
        root = Path(self.ref.url)
        self.files = {path: path.read_bytes() for path in sorted(root.rglob("*.parquet"))}
        self.commits = {path: path.read_bytes() for path in sorted(root.glob("_delta_log/*.json"))}
        table = source.table()
        self.ends = table.ends()
        self.records = {number: stored(table, number, 0, end) for number, end in self.ends.items()}

    def restore(self) -> None:
        for path, content in (self.files | self.commits).items():
            path.write_bytes(content)


@cache
def _written() -> _Written:
    return _Written()


def _read(written: _Written) -> None:
    with contextlib.suppress(LogError):
        table = Table.open(written.ref)
        if table is None:
            return
        for number, end in table.ends().items():
            start = table.extents(number)[0].first if table.extents(number) else end
            for batch in table.read(number, start, end):
                first = batch.column("offset")[0].as_py()
                expected = written.records[number].slice(first, len(batch))
                assert pa.Table.from_batches([batch]).equals(expected.combine_chunks()), (
                    f"other records from {first} on"
                )


def commit(data: bytes) -> None:
    """The last commit, replaced by these bytes."""
    written = _written()
    written.restore()
    list(written.commits)[-1].write_bytes(data)
    _read(written)


def file(data: bytes) -> None:
    """One of the files, by the first byte, with changes: where from its end (u16), how many bytes (u8), and these."""
    written = _written()
    written.restore()
    paths = list(written.files)
    path = paths[data[0] % len(paths)] if data else paths[0]
    content = bytearray(written.files[path])
    at = 1
    while at + 3 <= len(data):
        place, size = int.from_bytes(data[at : at + 2], "big") % len(content), data[at + 2] & 15
        place = len(content) - 1 - place
        change = data[at + 3 : at + 3 + size][: len(content) - place]
        content[place : place + len(change)] = change
        at += 3 + max(size, 1)
    path.write_bytes(content)
    _read(written)


def _changes() -> list[bytes]:
    return [bytes((number,)) + place.to_bytes(2, "big") + b"\2\xff\1" for number in range(3) for place in (4, 90, 2000)]


TARGETS: Final = (
    Target("tables.commit", commit, lambda: list(_written().commits.values()), quick=150, max_len=4096),
    Target("tables.file", file, _changes, quick=150),
)
