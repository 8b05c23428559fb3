"""`penstock table`, on a data directory that nobody uses and on one of a running broker."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.launcher import Done, penstock
from tests.log.tables.source import TOPIC, Source, spans

from penstock.broker.state.events import TopicCreated, encode
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import partition_id
from penstock.log.lock import DirectoryLock
from penstock.log.tables import maintenance
from penstock.log.tables.build import build


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[DirectoryLock]:
    """As a broker holds it."""
    made = DirectoryLock(str(tmp_path / "data"))
    yield made
    made.release()


@pytest.fixture
def source(tmp_path: Path, lock: DirectoryLock) -> Iterator[Source]:
    """Topic `orders` with a table, whose journal is there too, and topic `empty` without; used as by a broker."""
    made = Source(tmp_path)
    for number, name in ((TOPIC, "orders"), (TOPIC + 1, "empty")):
        made.engine.append_event(encode(TopicCreated(number, "default", "default", name, 3, TopicSettings(), 0)))
    made.fill(3)
    ends = made.build_all()
    made.engine.advance_table_ends({partition_id(TOPIC, number): end for number, end in ends.items()})
    made.append(0, 1)
    lock.acquire()
    yield made
    made.close()


def table(source: Source, *arguments: str) -> Done:
    directories = {"PENSTOCK_DATA_DIR": str(source.root / "data"), "PENSTOCK_TABLES__URL": str(source.root / "tables")}
    return penstock("table", *arguments, **directories)


def test_list(source: Source) -> None:
    done = table(source, "list")
    assert done.returncode == 0, done.stderr
    head, row = (line.split("\t") for line in done.stdout.splitlines())
    assert head == ["topic", "rows", "files", "bytes", "version", "offsets"]
    ends = source.table().ends()
    size = sum(path.stat().st_size for path in Path(source.ref.url).rglob("*.parquet"))
    ranges = " ".join(f"{number}:0-{end}" for number, end in ends.items())
    assert row == ["orders", str(sum(ends.values())), "9", str(size), "2", ranges]


def test_show(source: Source) -> None:
    maintenance.drop_below(source.ref, {1: source.table().ends()[1]})
    done = table(source, "show", "orders")
    assert done.returncode == 0, done.stderr
    assert f"place\t{source.ref.url}\nversion\t3\n" in done.stdout
    assert "timestamp timestamp[us, tz=UTC]" in done.stdout
    ends = source.table().ends()
    assert re.search(rf"^0\t0\t{ends[0]}\t3\t\d+\t2023-11-14T22:13:20Z\t2023-11-14T22:13:2\dZ$", done.stdout, re.M)
    assert f"\n1\t{ends[1]}\t{ends[1]}\t0\t0\t-\t-\n" in done.stdout


def test_the_lines_that_show_how_to_read_it_work(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    said = dict(line.split("\t", 1) for line in table(source, "show", "orders").stdout.splitlines()[-2:])
    ends = source.table().ends()
    for tool in ("DuckDB", "pandas"):
        python, flag, program = shlex.split(said[tool])
        assert (python, flag) == ("python", "-c")
        exec(program, {})
        out = capsys.readouterr().out
        expected = [str(end) for end in ends.values()] if tool == "DuckDB" else [f"[{sum(ends.values())} rows x 10 col"]
        assert all(part in out for part in expected), out


def test_verify_a_sound_table(source: Source) -> None:
    rows = sum(source.table().ends().values())
    for arguments in (("verify",), ("verify", "orders")):
        done = table(source, *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"orders: {rows} records in version 2, {rows} of them compared with the journal: sound\n"
    assert table(source, "verify", "empty").stdout == "empty: no table yet\n"


def test_verify_names_differences(source: Source) -> None:
    file = source.table().extents(2)[1]
    path = Path(source.ref.url, file.path)
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.set_column(1, "value", rows["value"].take([1, *range(1, len(rows))])), path)
    done = table(source, "verify")
    assert done.returncode == 1
    assert "orders: " in done.stdout and "DAMAGED" in done.stdout
    assert f"  damage: partition 2, offsets {file.first} to {file.end - 1}, {file.path}: " in done.stdout
    assert done.stderr.startswith(
        "penstock: 1 of 2 tables are damaged, or differ from the log. `penstock table repair`"
    )
    maintenance.remove(source.ref)
    done = table(source, "verify")
    assert done.returncode == 1 and "there is no table, but it should reach to offset" in done.stdout


def test_what_is_not_there_is_told(source: Source, tmp_path: Path) -> None:
    done = table(source, "show", "other")
    assert (done.returncode, done.stderr) == (1, "penstock: there is no topic 'other' in default/default\n")
    assert table(source, "verify", "orders", "--tenant", "acme").returncode == 1
    assert "has no table yet" in table(source, "show", "empty").stderr
    done = penstock("table", "list", "--data-dir", str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (1, "") and "no such directory" in done.stderr
    (tmp_path / "void").mkdir()
    done = penstock("table", "list", "--data-dir", str(tmp_path / "void"))
    assert done.returncode == 1 and "no Penstock log" in done.stderr


def test_nothing_is_changed(source: Source) -> None:
    def contents() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in source.root.rglob("*") if path.is_file()}

    source.fill(4)
    build(source.ref, source.closed()[-1], spans(source.closed()[-1]))
    before = contents()
    for arguments in (("list",), ("show", "orders"), ("verify",)):
        assert table(source, *arguments).returncode == 0
    assert contents() == before


def damage(source: Source) -> tuple[str, int, int]:
    """Flip a bit in the middle of a file; returns its path, and its offsets."""
    file = source.table().extents(1)[0]
    path = Path(source.ref.url, file.path)
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 4
    path.write_bytes(data)
    return file.path, file.first, file.end


def test_repair_rebuilds_what_the_journal_has(source: Source, lock: DirectoryLock) -> None:
    path, first, end = damage(source)
    done = table(source, "repair", "--yes")
    assert done.returncode == 1 and "is in use by" in done.stderr
    lock.release()
    done = table(source, "repair", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"orders: rebuilt: partition 1, offsets {first} to {end - 1}, {path}: " in done.stdout
    (said,) = [line for line in done.stdout.splitlines() if "copies of what was replaced" in line]
    assert Path(said.split(": ")[-1], path).exists()
    assert done.stdout.endswith("compared with the journal: sound\n")
    assert table(source, "verify").returncode == 0
    assert table(source, "repair").stdout == "There is nothing to repair.\n"
