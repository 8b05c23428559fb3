"""Journal files become tables: every record once, with everything it has, whatever happens in between."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.transaction import create_table_with_add_actions
from tests.log.tables.source import NAME, TOPIC, Source, spans, stored

from penstock.log.arrow import STORED, record_batches
from penstock.log.errors import LogDamaged
from penstock.log.files import OsFiles
from penstock.log.tables import build as build_module
from penstock.log.tables import commit as commit_module
from penstock.log.tables.build import PartitionSpan, build
from penstock.log.tables.commit import commit
from penstock.log.tables.errors import TableGap, TableNotWritten
from penstock.log.tables.location import TableRef, table_ref
from penstock.log.tables.store import TableStore
from penstock.log.tables.table import Table
from penstock.log.tailer import Tailer


def agree(source: Source, ends: dict[int, int], starts: dict[int, int] | None = None) -> None:
    """The table has what the journal has, up to these ends and nothing beyond."""
    table = source.table()
    assert table.ends() == ends
    for number, end in ends.items():
        start = (starts or {}).get(number, 0)
        assert stored(table, number, start, end).equals(source.log(number, start, end))
        files = table.extents(number)
        assert [file.first for file in files] == [start, *(file.end for file in files[:-1])]
        assert files[-1].end == end and all(file.rows == file.end - file.first for file in files)


def test_table_and_log_agree_in_every_column(source: Source) -> None:
    source.fill(3)
    ends = source.build_all()
    assert sorted(ends) == [0, 1, 2]
    agree(source, ends)
    table = source.table()
    assert table.version == 2  # one commit for each file
    assert pa.schema(table.delta.schema().to_arrow()).equals(STORED)
    some = stored(table, 0, 0, ends[0])
    assert {len(some[name].unique()) for name in ("topic", "partition")} == {1}
    assert some["headers"].null_count and some["key"].null_count and some["expires"].null_count
    assert some["headers"].null_count < len(some) > some["key"].null_count


def test_statistics_are_those_of_the_records(source: Source) -> None:
    source.fill(1)
    source.build_all()
    table = source.table()
    for number in table.partitions():
        for file in table.extents(number):
            stamps = source.log(number, file.first, file.end)["timestamp"].cast(pa.int64()).to_pylist()
            assert (file.min_timestamp, file.max_timestamp) == (min(stamps), max(stamps))
            assert file.may_expire == (source.log(number, file.first, file.end)["expires"].null_count < file.rows)
            path = Path(source.ref.url, file.path)
            assert file.bytes == path.stat().st_size
            metadata = pq.read_metadata(path)
            with_statistics = {
                chunk.path_in_schema
                for i in range(metadata.num_columns)
                if (chunk := metadata.row_group(0).column(i)).is_stats_set
            }
            assert with_statistics == {"offset", "timestamp"}


def test_a_second_build_of_the_same_file_adds_nothing(source: Source) -> None:
    source.fill(2)
    ends = source.build_all()
    version = source.table().version
    assert source.build_all() == ends
    assert source.table().version == version
    agree(source, ends)


def test_only_what_the_table_lacks_is_taken(source: Source) -> None:
    """As if the spans had been cut otherwise before: a build goes on where the table ends, in the middle of a file."""
    source.fill(1)
    (file,) = source.closed()
    whole = spans(file)
    middle = {number: PartitionSpan(0, span.end // 2 + 1) for number, span in whole.items()}
    assert build(source.ref, file, middle) == {number: span.end for number, span in middle.items()}
    agree(source, {number: span.end for number, span in middle.items()})
    agree(source, build(source.ref, file, whole))


def test_other_topics_and_partitions_are_left_alone(source: Source) -> None:
    source.append(0, 50, topic=TOPIC + 1)
    source.fill(1)
    (file,) = source.closed()
    wanted = {1: spans(file)[1]}
    assert build(source.ref, file, wanted) == {1: wanted[1].end}
    assert source.table().partitions() == [1]


def test_a_gap_is_refused(source: Source) -> None:
    source.fill(2)
    first, second = source.closed()
    with pytest.raises(TableGap, match="up to offset 0, but what is to follow begins at"):
        build(source.ref, second, spans(second))
    assert Table.open(source.ref) is None
    agree(source, build(source.ref, first, spans(first)))


def test_what_is_below_the_log_start_is_left_out(source: Source) -> None:
    """The log was trimmed beyond the table's end, within the file that comes next: there is no gap in the table."""
    source.fill(3)
    first, second, third = source.closed()
    build(source.ref, first, spans(first))
    starts = {number: span.first + 3 for number, span in spans(third).items()}
    with pytest.raises(TableGap):
        build(source.ref, third, {number: span._replace(start=span.first - 1) for number, span in spans(third).items()})
    ends = build(source.ref, third, {n: span._replace(start=starts[n]) for n, span in spans(third).items()})
    agree(source, ends, starts)
    assert build(source.ref, second, {n: span._replace(start=starts[n]) for n, span in spans(second).items()}) == ends


def test_a_file_that_is_wholly_below_the_log_start_is_not_taken(source: Source) -> None:
    source.fill(1)
    (file,) = source.closed()
    below = {number: span._replace(start=span.end) for number, span in spans(file).items()}
    assert build(source.ref, file, below) == {0: 0, 1: 0, 2: 0}
    assert Table.open(source.ref) is None


def test_large_files_are_cut(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.tables.build.record_batches", partial(record_batches, rows=10))
    monkeypatch.setattr("penstock.log.tables.part.ROW_GROUP_BYTES", 1)
    source.fill(2)
    files = source.closed()
    for file in files:
        build(source.ref, file, spans(file), file_bytes=1)
    table = source.table()
    assert len(table.extents(0)) > len(files)
    agree(source, table.ends())


def test_row_groups_are_bounded(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.tables.part.ROW_GROUP_BYTES", 2000)
    source.fill(1)
    agree(source, source.build_all())
    table = source.table()
    (file,) = table.extents(0)
    metadata = pq.read_metadata(Path(source.ref.url, file.path))
    assert metadata.num_row_groups > 2
    assert all(metadata.row_group(i).num_rows < 100 for i in range(metadata.num_row_groups))


def test_two_builders_at_once_add_nothing_twice(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder whose broker was killed may go on for a moment beside the next one."""
    source.fill(2)
    first, second = source.closed()
    build(source.ref, first, spans(first))

    def later(ref: TableRef, *arguments: Any) -> None:
        monkeypatch.setattr(build_module, "commit", commit)
        build(ref, second, spans(second))
        commit(ref, *arguments)

    monkeypatch.setattr(build_module, "commit", later)
    with pytest.raises(TableNotWritten, match="Concurrent transaction"):
        build(source.ref, second, spans(second))
    agree(source, {number: span.end for number, span in spans(second).items()})


def test_a_failed_build_leaves_the_table_and_no_files(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.fill(2)
    first, second = source.closed()
    ends = build(source.ref, first, spans(first))
    before = {file.path for file in TableStore(source.ref).data_files()}
    monkeypatch.setattr(TableStore, "size", _fail_at(2, OSError(28, "No space left on device"), TableStore.size))
    with pytest.raises(TableNotWritten, match="No space left on device"):
        build(source.ref, second, spans(second))
    assert {file.path for file in TableStore(source.ref).data_files()} == before
    agree(source, ends)
    monkeypatch.undo()
    agree(source, build(source.ref, second, spans(second)))


def test_a_commit_that_only_seems_to_fail_keeps_its_files(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.fill(1)
    (file,) = source.closed()
    monkeypatch.setattr(TableStore, "sync_log", _fail_at(1, OSError(5, "Input/output error"), TableStore.sync_log))
    with pytest.raises(TableNotWritten):
        build(source.ref, file, spans(file))
    agree(source, {number: span.end for number, span in spans(file).items()})
    assert build(source.ref, file, spans(file)) == source.table().ends()


def _fail_at(call: int, error: Exception, real: object) -> object:
    calls = iter(range(1, 1000))

    def wrapped(*arguments: object) -> object:
        if next(calls) == call:
            raise error
        return real(*arguments)  # type: ignore[operator]

    return wrapped


def test_damage_in_the_journal_is_told_and_nothing_is_taken(source: Source) -> None:
    source.fill(1)
    (file,) = source.closed()
    path = source.root / "data" / file.path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    tailer = Tailer(OsFiles(str(source.root / "data")))
    tailer.refresh()
    with pytest.raises(LogDamaged):
        build(source.ref, tailer.segments[0], spans(file))
    assert Table.open(source.ref) is None
    assert TableStore(source.ref).data_files() == []


def test_everything_is_synced_before_a_build_returns(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal file may go then: files before the commit that names them, then the commit, and all directories."""
    events: list[str] = []
    real_sync = os.fsync

    def sync(descriptor: int) -> None:
        events.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real_sync(descriptor)

    def create(*arguments: Any, **named: Any) -> None:
        events.append("commit")
        create_table_with_add_actions(*arguments, **named)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(commit_module, "create_table_with_add_actions", create)
    source.fill(1)
    source.build_all()
    url = source.ref.url
    at = events.index("commit")
    before, after = events[:at], events[at:]
    for file in TableStore(source.ref).data_files():
        assert f"{url}/{file.path}" in before
        assert os.path.dirname(f"{url}/{file.path}") in before
    assert url in before
    assert {f"{url}/_delta_log/{0:020d}.json", f"{url}/_delta_log", url, os.path.dirname(url)} <= set(after)


def test_what_was_committed_and_not_synced_is_synced_by_the_next_build(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.fill(1)
    source.build_all()
    synced: list[str] = []
    monkeypatch.setattr(TableStore, "sync", lambda _, paths: synced.extend(paths))
    source.build_all()
    assert synced == [f"_delta_log/{0:020d}.json"]


@pytest.mark.parametrize("name", [f"_delta_log/{1:020d}.json", f"_delta_log/{1:020d}.checkpoint.parquet"])
def test_a_loss_of_power_in_the_middle_of_a_commit_is_mended(source: Source, name: str) -> None:
    source.fill(2)
    first, second = source.closed()
    ends = build(source.ref, first, spans(first))
    build(source.ref, second, spans(second))
    source.table().delta.create_checkpoint()
    path = Path(source.ref.url, name)
    path.write_bytes(path.read_bytes()[:40])
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # it is written when the file is synced
    if name.endswith(".json"):  # the checkpoint came later, so it does not exist either
        for torn in Path(source.ref.url, "_delta_log").glob("*checkpoint*"):
            torn.unlink()
    else:
        ends = {number: span.end for number, span in spans(second).items()} | ends
    again = build(source.ref, second, spans(second))
    agree(source, {**ends, **again})


def test_a_table_can_lie_at_a_url_and_in_a_folder_with_any_name(source: Source) -> None:
    source.ref = table_ref(f"file://{source.root}/my%20t%C3%A4bles%25", {}, "t", "n", NAME, TOPIC)
    source.fill(1)
    agree(source, source.build_all())
    (uri, *_) = source.table().file_uris()
    assert uri.startswith(f"{source.root}/my täbles%/t/n/orders-7/partition=0/") and os.path.exists(uri)
