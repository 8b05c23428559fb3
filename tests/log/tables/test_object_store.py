"""Everything that tables do works in an object store as in a folder: nothing but the URL and the options leads there.

A store of your own is tried too, with PENSTOCK_TEST_OBJECT_STORE="URL NAME=VALUE …": nothing may be at that URL before,
and nothing is after. For Azurite: "az://CONTAINER/tables azure_storage_use_emulator=true"."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from tests.log.tables.object_store import object_store
from tests.log.tables.source import NAME, TOPIC, Source, stored
from tests.log.tables.test_build import agree
from tests.log.tables.test_row_group_reader import contents

from penstock.log.engine import partition_id
from penstock.log.tables import maintenance
from penstock.log.tables.location import table_ref
from penstock.log.tables.row_group_reader import RowGroupReader
from penstock.log.tables.store import TableStore
from penstock.log.tables.table import Table
from penstock.log.tables.verify import verify

OWN = os.environ.get("PENSTOCK_TEST_OBJECT_STORE", "").split()


@pytest.fixture(params=["s3://bucket/lake", "gs://bucket/lake", *OWN[:1]])
def store(source: Source, request: pytest.FixtureRequest) -> Iterator[TableStore]:
    url: str = request.param
    with object_store() as options:
        if url in OWN:
            options = dict(option.split("=", 1) for option in OWN[1:])
        source.ref = table_ref(url, options, "default", "default", NAME, TOPIC)
        yield TableStore(source.ref)


@pytest.mark.process
def test_the_life_of_a_table(source: Source, store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "CHECKPOINT_EVERY", 3)
    assert Table.open(source.ref) is None
    source.fill(4)
    ends = source.build_all()
    assert source.build_all() == ends
    agree(source, ends)
    assert source.table().file_uris()[0].startswith(f"{source.ref.url}/partition=0/")
    old = source.table()
    assert maintenance.compact(source.ref, min_files=2) > 4
    agree(source, ends)
    now = time.time_ns() // 1000
    assert maintenance.clean(source.ref, now, keep_seconds=0) > 4  # the store says that all of it is of 2025
    assert len(store.data_files()) == 3
    assert stored(old, 0, 1, 9).equals(source.log(0, 1, 9))  # by the newest version
    agree(source, ends)
    assert any("checkpoint" in file.path for file in store.log_files())
    source.fill(5)
    ends = source.build_all()
    agree(source, ends)
    assert verify(source.ref, source.tailer, dict.fromkeys(ends, 0), ends).sound
    slices = RowGroupReader(lambda _: source.ref).read(partition_id(TOPIC, 1), 3, ends[1], 1 << 30, 1 << 30)
    assert contents(slices) == contents(list(source.tailer.slices(partition_id(TOPIC, 1), 3, ends[1])))
    assert source.table().offset_at(1, 0, 2) == 2
    assert maintenance.drop_below(source.ref, ends) > 0
    maintenance.remove(source.ref)
    assert not store.data_files() and not store.log_files() and Table.open(source.ref) is None
