"""Flipped bits in a table's files: what is read is what was written, or the read fails and says where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.effort import scaled
from tests.log.tables.legacy import build_legacy
from tests.log.tables.source import NAME, TOPIC, Source, spans, stored
from tests.log.tables.test_row_group_reader import contents, journal

from penstock.log.engine import partition_id
from penstock.log.errors import TableDamaged, TableUnreadable
from penstock.log.tables import maintenance
from penstock.log.tables.build import build
from penstock.log.tables.part_reader import PartReader, RowGroup, TableFile
from penstock.log.tables.repair import TableRepair, repair
from penstock.log.tables.row_group_reader import RowGroupReader
from penstock.log.tables.store import TableStore
from penstock.log.tables.table import Table
from penstock.log.tables.verify import Verification, verify

pytestmark = pytest.mark.crash

P = partition_id(TOPIC, 0)
PLENTY = 1 << 30
FLIPS = scaled(250)  # of each file: a sample of its bytes, and all of its last ones


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A table of several versions, files and row groups, with a checkpoint, for all tests to copy."""
    source = Source(tmp_path_factory.mktemp("original"))
    with pytest.MonkeyPatch.context() as patch:
        use_small_parts(patch)
        source.fill(2, partitions=2)
        source.build_all()
        maintenance.clean(source.ref, 1)
        source.fill(3, partitions=2)
        source.build_all()
    source.close()
    return source


def use_small_parts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("penstock.log.tables.part.ROW_GROUP_BYTES", 3000)
    patch.setattr("penstock.log.tables.maintenance.CHECKPOINT_EVERY", 1)


@pytest.fixture
def table(original: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    use_small_parts(monkeypatch)
    copy = original.copy(tmp_path)
    yield copy
    copy.close()


def flips(path: Path, seed: int = 1, count: int = FLIPS, *, structure: bool = True) -> Iterator[int]:
    """The file with one bit flipped, again and again; as it was, at the end. Yields the place of the byte: a sample,
    and the first and last ones, which say what the file is."""
    whole = path.read_bytes()
    random = Random(seed)
    ends = {*range(8), *range(max(0, len(whole) - 32), len(whole))} if structure else set()
    try:
        for at in sorted({*random.sample(range(len(whole)), min(count, len(whole))), *ends}):
            path.write_bytes(flipped(whole, at, random.randrange(8)))
            yield at
    finally:
        path.write_bytes(whole)


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def flip(path: Path, at: int, bit: int = 0) -> None:
    path.write_bytes(flipped(path.read_bytes(), at, bit))


def rows_of(source: Source) -> dict[int, pa.Table]:
    found = source.table()
    return {number: stored(found, number, 0, end) for number, end in found.ends().items()}


def test_a_flipped_bit_of_a_file_is_never_served(table: Source) -> None:
    before = rows_of(table)
    file = table.table().extents(0)[0]
    path, told = Path(table.ref.url, file.path), 0
    for at in flips(path):
        try:
            assert rows_of(table) == before, f"byte {at}"
        except TableDamaged as error:
            told += 1
            assert error.file == str(path) and error.topic == NAME and error.partition == 0, f"byte {at}"
            assert file.first <= error.first < error.end <= file.end
            assert all(text in str(error) for text in (str(path), f"'{NAME}'", f"offsets {error.first} to"))
    assert told > FLIPS // 2
    assert rows_of(table) == before


def test_a_flipped_bit_of_the_tables_log_is_never_served(table: Source) -> None:
    def everything() -> object:
        found = table.table()
        files = [found.extents(number) for number in found.partitions()]
        return found.version, found.ends(), files

    before, told = everything(), 0
    log = Path(table.ref.url, "_delta_log")
    paths = [path for path in log.iterdir() if not path.name.startswith(".")]
    assert {path.suffix for path in paths} == {".json", ".parquet", ""} and len(paths) >= 5
    for path in sorted(paths):
        for at in flips(path, count=scaled(50)):
            try:
                assert everything() == before, f"{path.name}, byte {at}"
            except TableUnreadable as error:
                told += 1
                assert f"'{NAME}'" in str(error)
    assert told > 30
    assert everything() == before


# -- what is beside damage


def damaged_group(source: Source, partition: int = 0) -> tuple[TableFile, RowGroup]:
    """A row group in the middle of a file, after a bit of a value of it was flipped."""
    file = max(source.table().extents(partition), key=lambda file: file.rows)
    with PartReader(TableStore(source.ref), file) as part:
        assert len(part.groups) >= 3
        group = part.groups[1]
        column = part._parquet.metadata.row_group(group.number).column(1)
        assert column.path_in_schema == "value"
    flip(Path(source.ref.url, file.path), column.data_page_offset + column.total_compressed_size - 3)
    return file, group


def test_everything_but_the_damaged_offsets_is_read(table: Source) -> None:
    end = table.table().ends()[0]
    expected = journal(table, 0, end)
    file, group = damaged_group(table)
    reader = RowGroupReader(lambda _: table.ref)
    found: list[tuple[object, ...]] = []
    for first, limit in ((0, group.first), (group.end, end)):
        at = first
        while at < limit:
            bite = contents(reader.read(P, at, end, 5000, PLENTY))
            found += bite
            at += len(bite)
        assert at == limit
    assert found == expected[: group.first] + expected[group.end :]
    for offset in (group.first, group.end - 1):
        with pytest.raises(TableDamaged) as told:
            reader.read(P, offset, end, PLENTY, PLENTY)
        assert (told.value.first, told.value.end) == (group.first, group.end)
    # A column that is whole can be read, and so can what is beside it, in one sweep.
    assert sum(map(len, table.table().read(0, 0, end, ("timestamp", "offset")))) == end
    assert stored(table.table(), 0, group.end, file.end) == table.log(0, group.end, file.end)


def test_maintenance_goes_on_beside_damage(table: Source) -> None:
    file, _ = damaged_group(table)
    before = {number: len(table.table().extents(number)) for number in (0, 1)}
    assert maintenance.compact(table.ref, min_files=2, target_bytes=1 << 30) == before[1]
    after = table.table()
    assert len(after.extents(1)) == 1 and file in after.extents(0)


# -- what is told, and repaired


def check(source: Source) -> Verification:
    source.tailer.refresh()
    ends = source.table().ends()
    return verify(source.ref, source.tailer, dict.fromkeys(ends, 0), ends)


def mend(source: Source, ends: dict[int, int]) -> TableRepair:
    source.tailer.refresh()
    return repair(source.ref, source.tailer, dict.fromkeys(ends, 0), ends, "kept")


def forget_journal(source: Source, *which: int) -> None:
    """The broker has deleted these segments."""
    for file in [file for index, file in enumerate(source.closed()) if index in which]:
        for path in (source.root / "data" / "journal").glob(f"{file.sequence:020d}.*"):
            path.unlink()
    source.tailer.refresh()


def test_verify_names_all_damage_and_goes_on_behind_it(table: Source) -> None:
    assert check(table).sound
    (file, group), (other, second) = damaged_group(table), damaged_group(table, 1)
    outcome = check(table)
    assert not outcome.sound and not outcome.unchecked
    assert [(found.file, found.partition, found.first, found.end) for found in outcome.damage] == [
        (file.path, 0, group.first, group.end),
        (other.path, 1, second.first, second.end),
    ]
    assert outcome.checked == sum(table.table().ends().values()) - group.rows - second.rows
    said = f"partition 0, offsets {group.first} to {group.end - 1}, {file.path}: value of these records"
    assert str(outcome.damage[0]).startswith(said)


def test_verify_finds_a_flipped_bit_in_any_byte(table: Source) -> None:
    """Also where it does no harm: in what nobody reads, in files that were replaced."""
    maintenance.compact(table.ref, partitions=[1], min_files=2, target_bytes=1 << 30)
    root = Path(table.ref.url)
    paths = [path for path in root.rglob("*") if path.is_file() and path.suffix in (".parquet", ".json")]
    used = {Path(file.path).name for file in table.table().extents(1)}
    replaced = [path for path in paths if "partition=1" in path.parts and path.name not in used]
    assert replaced
    for path in [*replaced[:1], *(path for path in paths if path not in replaced)]:
        for at in flips(path, count=3, structure=False):
            outcome = verify(table.ref, table.tailer, {0: 0, 1: 0}, {})
            assert not outcome.sound, f"{path.name}, byte {at}"
    assert check(table).sound


def test_a_file_is_rebuilt_from_the_journal(table: Source) -> None:
    before, ends = rows_of(table), table.table().ends()
    file, group = damaged_group(table)
    whole = Path(table.ref.url, file.path).read_bytes()
    report = mend(table, ends)
    assert [(found.file, found.first, found.end) for found in report.rebuilt] == [(file.path, group.first, group.end)]
    assert report.after is not None and report.after.sound and not report.lost
    assert rows_of(table) == before
    assert Path(table.ref.url, "_replaced/kept", file.path).read_bytes() == whole
    maintenance.clean(table.ref, 1 << 62, keep_seconds=0)
    assert Path(table.ref.url, "_replaced/kept", file.path).exists()
    assert mend(table, ends).rebuilt == []


def test_a_file_whose_footer_is_damaged_is_rebuilt(table: Source) -> None:
    before, ends = rows_of(table), table.table().ends()
    path = Path(table.ref.url, table.table().extents(1)[0].path)
    flip(path, path.stat().st_size - 6)
    with pytest.raises(TableDamaged):
        rows_of(table)
    assert mend(table, ends).rebuilt and rows_of(table) == before


@pytest.mark.parametrize("journal", ["whole", "gone"])
def test_a_file_that_is_gone_is_rebuilt_or_named(table: Source, journal: str) -> None:
    before, ends = rows_of(table), table.table().ends()
    file = table.table().extents(0)[0]
    Path(table.ref.url, file.path).unlink()
    if journal == "gone":
        forget_journal(table, 0, 1, 2)
    place = [(file.path, 0, file.first, file.end)]
    assert [(damage.file, damage.partition, damage.first, damage.end) for damage in check(table).damage] == place
    report = mend(table, ends)
    found = report.rebuilt if journal == "whole" else report.lost
    assert [(damage.file, damage.partition, damage.first, damage.end) for damage in found] == place
    if journal == "whole":
        assert rows_of(table) == before and check(table).sound


def test_what_neither_the_journal_nor_the_file_has_is_named_and_stays(table: Source) -> None:
    ends = table.table().ends()
    file, group = damaged_group(table)
    forget_journal(table, 0, 1, 2)
    state = Path(table.ref.url, file.path).read_bytes()
    report = mend(table, ends)
    assert [(lost.file, lost.partition, lost.first, lost.end) for lost in report.lost] == [
        (file.path, 0, group.first, group.end)
    ]
    assert report.rebuilt == [] and report.after is not None and not report.after.sound
    assert Path(table.ref.url, file.path).read_bytes() == state and file in table.table().extents(0)


def merged(source: Source) -> TableFile:
    """Partition 0 as one file, of which the journal has only what is behind the first segment, and no file any."""
    maintenance.compact(source.ref, min_files=2, target_bytes=1 << 30)
    maintenance.clean(source.ref, 1 << 62, keep_seconds=0)
    forget_journal(source, 0)
    (file,) = source.table().extents(0)
    return file


def expect_lost(source: Source, before: pa.Table, first: int, end: int) -> None:
    """These offsets are errors, by every reader, and all others are what they were."""
    reader, last = RowGroupReader(lambda _: source.ref), len(before)
    for offset in (first, end - 1):
        with pytest.raises(TableDamaged) as told:
            reader.read(P, offset, last, PLENTY, PLENTY)
        assert (told.value.topic, told.value.partition, told.value.first, told.value.end) == (NAME, 0, first, end)
    with pytest.raises(TableDamaged):
        stored(source.table(), 0, 0, last)
    with pytest.raises(Exception, match=r"(?i)parquet|magic"):
        source.table().delta.to_pyarrow_table()
    for low, high in ((0, first), (end, last)):
        assert stored(source.table(), 0, low, high) == before.slice(low, high - low).combine_chunks()


@pytest.mark.parametrize("where", ["footer", "row group"])
def test_the_part_of_a_file_that_the_journal_has_is_rebuilt(table: Source, where: str) -> None:
    before, ends = rows_of(table), table.table().ends()
    file = merged(table)
    held = table.tailer.extent(P)
    assert held is not None and 0 < held[0] < held[1]
    path = Path(table.ref.url, file.path)
    if where == "footer":
        flip(path, path.stat().st_size - 6)
        first, end = 0, held[0]
    else:
        with PartReader(TableStore(table.ref), file) as part:
            group = next(group for group in part.groups if group.first < held[0] < group.end)
            column = part._parquet.metadata.row_group(group.number).column(1)
        flip(path, column.data_page_offset + column.total_compressed_size - 3)
        first, end = group.first, held[0]
        assert first > 0
    whole = path.read_bytes()
    report = mend(table, ends)
    assert [(lost.partition, lost.first, lost.end) for lost in report.lost] == [(0, first, end)]
    assert [(found.file, found.first) for found in report.rebuilt] == [(file.path, end)]
    assert report.after is not None
    assert [(left.partition, left.first, left.end) for left in report.after.damage] == [(0, first, end)]
    assert not report.after.differences and Path(table.ref.url, "_replaced/kept", file.path).read_bytes() == whole
    expect_lost(table, before[0], first, end)

    # Again, and everything else that changes a table: it stays an error, and nothing is in its way.
    again = mend(table, ends)
    assert again.rebuilt == [] and [(lost.first, lost.end) for lost in again.lost] == [(first, end)]
    maintenance.compact(table.ref, min_files=2, target_bytes=1 << 30)
    maintenance.clean(table.ref, 1 << 62, keep_seconds=0)
    for entry in Path(table.ref.url, "_delta_log").iterdir():
        entry.unlink()
    assert mend(table, ends).log_rebuilt
    expect_lost(table, before[0], first, end)


def test_a_file_that_is_put_back_gives_back_what_was_lost(table: Source) -> None:
    before, ends = rows_of(table), table.table().ends()
    file = merged(table)
    path = Path(table.ref.url, file.path)
    copy = path.read_bytes()
    flip(path, path.stat().st_size - 6)
    assert mend(table, ends).lost and not path.exists()
    path.write_bytes(copy)
    report = mend(table, ends)
    assert report.rebuilt and not report.lost and report.after is not None and report.after.sound
    assert rows_of(table) == before


def test_files_that_were_merged_lately_help_out(table: Source) -> None:
    before, ends = rows_of(table), table.table().ends()
    maintenance.compact(table.ref, min_files=2, target_bytes=1 << 30)
    forget_journal(table, 0, 1, 2)
    file, group = damaged_group(table)
    report = mend(table, ends)
    assert [(found.file, found.first, found.end) for found in report.rebuilt] == [(file.path, group.first, group.end)]
    assert report.after is not None and report.after.sound and not report.lost and rows_of(table) == before


@pytest.mark.parametrize("what", ["entry", "checkpoint", "nothing left"])
@pytest.mark.parametrize("compacted", [False, True])
def test_the_tables_log_is_made_again_from_the_files(table: Source, what: str, compacted: bool) -> None:
    if compacted:  # files with the same records lie beside each other
        maintenance.compact(table.ref, min_files=2, target_bytes=1 << 30)
    before, ends = rows_of(table), table.table().ends()
    forget_journal(table, 0, 1, 2)
    log = Path(table.ref.url, "_delta_log")
    if what == "nothing left":
        for path in log.iterdir():
            path.unlink()
    else:
        pattern = f"{table.table().version:020d}.json" if what == "entry" else "*.checkpoint.parquet"
        path = max(log.glob(pattern))
        data = path.read_bytes()
        path.write_bytes(data.replace(b'"add"', b'"adc"') if what == "entry" else flipped(data, len(data) - 20))
        with pytest.raises(TableUnreadable, match=path.name):
            table.table()
    report = mend(table, ends)
    assert report.log_rebuilt and report.after is not None and report.after.sound
    assert table.table().ends() == ends and rows_of(table) == before
    if what != "nothing left":
        assert Path(table.ref.url, "_replaced/kept/_delta_log", path.name).read_bytes() == path_bytes(what, data)
    table.fill(5, partitions=2)
    build_rest(table)
    assert check(table).sound


def path_bytes(what: str, data: bytes) -> bytes:
    return data.replace(b'"add"', b'"adc"') if what == "entry" else flipped(data, len(data) - 20)


def build_rest(source: Source) -> None:
    for segment in source.closed():
        build(source.ref, segment, spans(segment))


def test_a_log_is_not_made_again_with_offsets_left_out(table: Source) -> None:
    ends = table.table().ends()
    forget_journal(table, 0, 1, 2)
    file = table.table().extents(0)[0]
    Path(table.ref.url, file.path).unlink()
    log = Path(table.ref.url, "_delta_log")
    for path in log.iterdir():
        path.unlink()
    with pytest.raises(TableUnreadable, match=f"offsets 0 to {file.end - 1} of partition 0"):
        mend(table, ends)
    assert not list(log.iterdir())


# -- a builder that goes wrong, and tables of earlier versions


def test_a_file_that_is_not_what_the_journal_has_is_not_committed(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk, or a library, changes a byte on its way: the segment is still needed, and stays."""
    source.fill(1)
    (segment,) = source.closed()
    synced = TableStore.drop_cached

    def damage(store: TableStore, paths: list[str]) -> None:
        synced(store, paths)
        path = Path(store.folder or "", paths[0])
        flip(path, path.stat().st_size // 3)

    monkeypatch.setattr(TableStore, "drop_cached", damage)
    with pytest.raises(TableDamaged):
        build(source.ref, segment, spans(segment))
    assert Table.open(source.ref) is None and TableStore(source.ref).data_files() == []
    monkeypatch.undo()
    source.build_all()
    assert check(source).sound


def test_tables_of_earlier_versions_are_read_and_get_checksums_when_they_are_merged(source: Source) -> None:
    source.fill(2)
    ends = build_legacy(source)
    before = rows_of(source)
    outcome = check(source)
    assert outcome.sound and outcome.files == outcome.unchecked > 3 and not source.table().checksummed
    for number, end in ends.items():
        assert unplaced(before[number]) == unplaced(source.log(number, 0, end))
        assert before[number]["position"].to_pylist() == source.own_positions(number, 0, end)
    source.fill(3)
    source.build_all()
    assert source.table().checksummed and check(source).unchecked == outcome.unchecked
    maintenance.compact(source.ref, min_files=2, target_bytes=1 << 30, partitions=[0])
    after = check(source)
    assert after.sound and after.unchecked < outcome.unchecked
    assert repair(source.ref, source.tailer, dict.fromkeys(ends, 0), ends, "kept", checksums=True).rewritten
    assert check(source).sound and check(source).unchecked == 0
    for number, end in ends.items():
        assert unplaced(stored(source.table(), number, 0, end)) == unplaced(before[number])


def unplaced(rows: pa.Table) -> pa.Table:
    """Without what earlier versions wrote differently: the position of each record, not that of its commit group, and
    no door."""
    return rows.drop_columns(["position", "door"])


def test_a_legacy_file_that_differs_is_rebuilt_from_the_journal(source: Source) -> None:
    source.fill(2)
    ends = build_legacy(source)
    before = rows_of(source)
    path = Path(source.ref.url, source.table().extents(1)[0].path)
    rows = pq.ParquetFile(path).read()
    values = rows["value"].to_pylist()
    values[5] = b"other"
    pq.write_table(rows.set_column(1, rows.field("value"), pa.array(values, pa.binary())), path)
    assert rows_of(source) != before
    report = mend(source, ends)
    assert report.rebuilt and report.after is not None and report.after.sound
    after = rows_of(source)
    assert [unplaced(after[number]) for number in before] == [unplaced(before[number]) for number in before]
