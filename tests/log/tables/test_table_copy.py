"""Tables are the same elsewhere: from a folder to an object store and back, after an interruption too."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.log.tables.object_store import object_store
from tests.log.tables.source import NAME, TOPIC, Source
from tests.log.tables.test_build import agree

from penstock.log.tables.copy import TablesDiffer, compare_tables, copy_tables, exist
from penstock.log.tables.location import table_ref
from penstock.log.tables.verify import verify

S3 = "s3://bucket/lake"


def nobody_sees(_done: int, _all: int) -> None:
    pass


@pytest.mark.process
def test_to_an_object_store_and_back(source: Source, tmp_path: Path) -> None:
    source.fill(4)
    ends = source.build_all()
    here, back = str(source.root / "tables"), str(tmp_path / "back")
    with object_store() as options:
        assert not exist(S3, options)
        copied = copy_tables(here, S3, options, nobody_sees)
        assert copied.files > 4
        assert compare_tables(here, S3, options, nobody_sees) == copied
        source.ref = table_ref(S3, options, "default", "default", NAME, TOPIC)
        agree(source, ends)
        source.fill(5)
        ends = source.build_all()  # goes on there
        told: list[tuple[int, int]] = []
        copy_tables(S3, back, options, lambda done, total: told.append((done, total)))
        assert told[-1][0] == told[-1][1]
    source.ref = table_ref(back, {}, "default", "default", NAME, TOPIC)
    agree(source, ends)
    assert verify(source.ref, source.tailer, dict.fromkeys(ends, 0), ends).sound
    assert all(path.stat().st_mode & 0o077 == 0 for path in Path(back).rglob("*.parquet"))


def test_an_interrupted_copy_and_differences(source: Source, tmp_path: Path) -> None:
    source.fill(3)
    ends = source.build_all()
    here, there = str(source.root / "tables"), tmp_path / "there"
    copied = copy_tables(here, str(there), {}, nobody_sees)
    first, second, *_ = sorted(there.rglob("*.parquet"))
    first.write_bytes(first.read_bytes()[:100])  # killed while it was written
    second.unlink()
    assert copy_tables(here, str(there), {}, nobody_sees) == copied
    assert compare_tables(here, str(there), {}, nobody_sees) == copied
    source.ref = table_ref(str(there), {}, "default", "default", NAME, TOPIC)
    agree(source, ends)
    content = bytearray(first.read_bytes())
    content[50] ^= 1
    first.write_bytes(content)
    with pytest.raises(TablesDiffer, match="is not the same in"):
        compare_tables(here, str(there), {}, nobody_sees)
    (there / "stray.parquet").write_bytes(b"x")
    with pytest.raises(TablesDiffer, match=r"stray\.parquet is only in"):
        compare_tables(here, str(there), {}, nobody_sees)
    with pytest.raises(TablesDiffer, match="has other tables already"):
        copy_tables(here, str(there), {}, nobody_sees)
