"""The fixture of the tests of tables: a journal of small files with records of every kind, and its table."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pyarrow as pa

from penstock.log.arrow import OWN_POSITION, STORED, record_batches
from penstock.log.batch import Headers
from penstock.log.committer import InlineCommitter
from penstock.log.engine import Durability, Records, number_of, partition_id, topic_of
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.log.segment import Segment
from penstock.log.tables.build import PartitionSpan, build
from penstock.log.tables.location import TableRef, table_ref
from penstock.log.tables.table import Table
from penstock.log.tailer import Tailer

TOPIC = 7
NAME = "orders"
START = 1_700_000_000_000_000
MILLISECOND = 1000


class Source:
    """A journal in `root`, and what of it belongs to topic `TOPIC`."""

    def __init__(self, root: Path, *, file_bytes: int = 32 << 10, seed: int = 1) -> None:
        self.root = root
        self._file_bytes = file_bytes
        self.now = START
        self._random = Random(seed)
        self._doors = Random(seed)
        self._committer = InlineCommitter()
        (root / "data").mkdir(parents=True, exist_ok=True)
        settings = LogSettings(file_bytes=file_bytes, durability=Durability.WRITTEN)
        self.engine = FileEngine(
            OsFiles(str(root / "data")), settings, committer=self._committer, clock=lambda: self.now
        )
        self.tailer = Tailer(OsFiles(str(root / "data")))
        self.ref: TableRef = table_ref(str(root / "tables"), {}, "default", "default", NAME, TOPIC)

    def copy(self, root: Path) -> Source:
        """Another one in `root`, with the same records and table, that goes on as this one would."""
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        copy = Source(root, file_bytes=self._file_bytes)
        copy.now = self.now
        copy._random.setstate(self._random.getstate())
        return copy

    def append(self, number: int, count: int, *, size: int = 60, topic: int = TOPIC, plain: bool = False) -> None:
        """Records of one commit group. If not `plain`, some have keys, headers, or an end."""
        random, kind = self._random, 0 if plain else self._random.randrange(8)
        keys = headers = expires = None
        if kind & 1:
            keys = [random.choice((None, b"", b"key", random.randbytes(5))) for _ in range(count)]
        if kind & 2:
            options: tuple[Headers, ...] = ((), (("trace", b"\x00\xff"),), (("a", b""), ("ä", b"1"), ("a", b"2")))
            headers = [random.choice(options) for _ in range(count)]
        if kind & 4:
            expires = [random.choice((0, self.now + 1, START * 2)) for _ in range(count)]
        values = [random.randbytes(random.randrange(size)) for _ in range(count)]
        self.now += random.choice((0, 1, 7)) * MILLISECOND
        records = Records(partition_id(topic, number), values, keys, headers, expires)
        self.engine.append([records], door=self._doors.choice((0, 1, 1, 3, 8)))
        while self._committer.run():
            pass

    def fill(self, files: int, partitions: int = 3, most: int = 40) -> None:
        """Append until so many files are closed."""
        while len(self.closed()) < files:
            self.append(self._random.randrange(partitions), self._random.randrange(1, most))

    def closed(self) -> list[Segment]:
        self.tailer.refresh()
        return self.tailer.segments[:-1]

    def build_all(self) -> dict[int, int]:
        ends: dict[int, int] = {}
        for file in self.closed():
            ends |= build(self.ref, file, spans(file))
        return ends

    def table(self) -> Table:
        found = Table.open(self.ref)
        assert found is not None
        return found

    def log(self, number: int, offset: int, end: int) -> pa.Table:
        """The records in the journal."""
        slices = self.tailer.slices(partition_id(TOPIC, number), offset, end, groups=True)
        return rows(list(record_batches(slices, NAME, STORED.names)))

    def own_positions(self, number: int, offset: int, end: int) -> list[int]:
        """Of each record, as the journal counts them."""
        slices = self.tailer.slices(partition_id(TOPIC, number), offset, end)
        return [at for batch in record_batches(slices, NAME, [OWN_POSITION]) for at in batch.column(0).to_pylist()]

    def close(self) -> None:
        self.engine.close()


def spans(file: Segment, start: int = 0) -> dict[int, PartitionSpan]:
    """All that a file has of `TOPIC`."""
    found = {}
    for partition in file.index.partitions():
        extent = file.index.extent(partition)
        if topic_of(partition) == TOPIC and extent is not None:  # type: ignore[arg-type] # an index knows no ids
            found[number_of(partition)] = PartitionSpan(extent.first_offset, extent.end_offset, start)  # type: ignore[arg-type]
    return found


def rows(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, STORED).combine_chunks()


def stored(table: Table, number: int, offset: int, end: int) -> pa.Table:
    """The records in the table."""
    return rows(list(table.read(number, offset, end)))
