"""A data directory that an earlier version wrote opens in this one, with everything in it.

`data-directory-0.1.tar.xz` was written by version 0.1.0 as it was before the packages `wire`, `doors` and `clients`
(then `protocols`), by `generate.py` with that version's imports; the broker was killed at the end. It has records of
all doors, most of them only in Delta tables because their segments are deleted; users, roles, access lists and API
keys; schemas; queues with messages waiting, in flight and dead; offsets of groups; records that are delayed, or expire;
transactions and publications that were finished, given up and left open; a journalled cache, tenants, a declared SQL
table and the audit log. `expected-0.1.json` has the answers of that version, by the questions of `contents.py`."""

from __future__ import annotations

import json
import tarfile
import time
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.compatibility.contents import GUARDED, guarded_contents, open_contents, running
from tests.console.demo import Api
from tests.launcher import BrokerProcess, penstock
from tests.moved import SECONDS

from penstock.clients.rustlog import Client as RustLog

HERE = Path(__file__).parent
ORDERS = 20  # records of that version in each partition of `orders`


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    found = json.loads((HERE / "expected-0.1.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory, expected: dict[str, Any]) -> dict[str, Any]:
    """The directory, unpacked and read by this version: first with security on, then off."""
    directory = tmp_path_factory.mktemp("compatibility")
    with tarfile.open(HERE / "data-directory-0.1.tar.xz") as archive:
        safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since Python 3.11.4
        archive.extractall(directory, **safely)
    data = directory / "data"
    assert min(path.name for path in (data / "journal").glob("*.journal")) > "00000000000000000001.journal"
    assert list((data / "tables/default/default").glob("orders-*/partition=0/*.parquet"))
    verified = penstock("log", "verify", "--data-dir", str(data))
    assert verified.returncode == 0, verified
    found: dict[str, Any] = {}
    with running(data, **GUARDED) as broker:
        found["guarded"] = guarded_contents(broker, expected["notes"])
    with running(data, PENSTOCK_QUEUES__BACKOFF_SECONDS="60") as broker:  # on a busy machine, too, nothing comes twice
        found["open"] = open_contents(broker, expected["notes"])
        found["doors"] = _doors_of_old_and_new(broker, data)
    verified = penstock("log", "verify", "--data-dir", str(data))
    assert verified.returncode == 0, verified
    verified = penstock("table", "verify", "--data-dir", str(data))
    assert verified.returncode == 0, verified
    return found


def _doors_of_old_and_new(broker: BrokerProcess, data: Path) -> list[str | None]:
    """Of the records of a table which that version began, and this one has gone on with: as they are read, and as the
    table has them."""
    api = Api(f"http://{broker.address('http')}")
    with RustLog(*broker.endpoint("rustlog")) as client:
        client.produce("orders", 0, [b"new"])
        end = time.monotonic() + SECONDS
        while _table_end(api, "orders") < ORDERS + 1:  # a segment is closed by what comes when it is full
            assert time.monotonic() < end, api("GET", "/tables")
            client.produce("filler", 0, [bytes(20_000)] * 2)
            time.sleep(0.3)
    table = DeltaTable(next((data / "tables/default/default").glob("orders-*")))
    assert table.schema().fields[-1].name == "door"
    rows = table.to_pyarrow_table(filters=[("partition", "=", 0)], columns=["offset", "door"]).to_pylist()
    stored = [row["door"] for row in sorted(rows, key=itemgetter("offset"))]
    found = api("GET", "/topics/orders/records?start=earliest&partition=0&limit=100")
    assert [record["door"] for record in found["records"]] == stored
    return stored


def _table_end(api: Api, topic: str) -> int:
    return int(next(table["ends"]["0"] for table in api("GET", "/tables")["items"] if table["topic"] == topic))


@pytest.mark.parametrize("door", ["rustlog", "flymq", "blipmq", "kimberlite", "felix"])
def test_everything_is_there(contents: dict[str, Any], expected: dict[str, Any], door: str) -> None:
    found, wanted = contents["open"][door], expected["open"][door]
    assert found.keys() == wanted.keys()
    for part in wanted:
        assert found[part] == wanted[part], part


def test_users_keys_and_the_audit_log_are_as_they_were(contents: dict[str, Any], expected: dict[str, Any]) -> None:
    found, wanted = contents["guarded"], expected["guarded"]
    assert found.keys() == wanted.keys()
    for part in wanted:
        assert found[part] == wanted[part], part


def test_a_table_of_that_version_goes_on_with_the_doors_of_records(contents: dict[str, Any]) -> None:
    assert contents["doors"] == [None] * ORDERS + ["rustlog"]


def test_the_stored_directory_has_what_it_is_said_to_have(expected: dict[str, Any]) -> None:
    """The version that wrote it said so: nothing here is about the present one."""
    wanted = expected["open"]
    assert [len(wanted["rustlog"][f"orders/{partition}"]) for partition in range(3)] == [20, 20, 20]
    assert [record[2] for record in wanted["rustlog"]["moved/0"]] == [f"together {number}" for number in range(3)]
    assert [record[1] for record in wanted["rustlog"]["later/0"]] == ["at once", "while nobody ran"]
    assert len(wanted["rustlog"]["published/0"]) == 3
    assert [job[0] for job in wanted["blipmq"]["jobs"]] == [f"job {number}" for number in range(2, 10)]
    assert len(wanted["flymq"]["dead letters"]) == 1
    assert wanted["felix"]["greeting"] == "hello"
    assert wanted["kimberlite"]["auditors"][0] == 4
    assert len(expected["guarded"]["audit"]) > 20
