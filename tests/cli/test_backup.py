"""`penstock backup` and `restore`: under load, elsewhere, and what refuses to be restored."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.histories.checker import check
from tests.histories.history import History, Place
from tests.launcher import BrokerProcess, penstock

import penstock as api
from penstock.log.files import OsFiles
from penstock.log.segment import sequences

SMALL = {
    "PENSTOCK_LOG__FILE_BYTES": "256KiB",
    "PENSTOCK_LOG__SNAPSHOT_BYTES": "64KiB",
    "PENSTOCK_TABLES__ENABLED": "true",
}
BATCH = 40
PARTITIONS = 2


class Append(NamedTuple):
    partition: int
    ids: list[str]
    offset: int


class Load:
    """A client that appends batch after batch, and keeps what it was told."""

    def __init__(self, address: str) -> None:
        self.acknowledged: list[Append] = []
        self.sent: list[tuple[int, list[str]]] = []
        self._address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with api.connect(self._address) as db:
            for number in count():
                if self._stop.wait(0.005):  # so that there is not much to read again
                    return
                partition = number % PARTITIONS
                ids = [f"{number}-{index}" for index in range(BATCH)]
                self.sent.append((partition, ids))
                values = [f"{name} {'x' * 200}" for name in ids]
                places = db.produce_many("orders", values, partition=partition)
                self.acknowledged.append(Append(partition, ids, places[0].offset))

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def ok(*arguments: str) -> dict[str, object]:
    done = penstock(*arguments, "--output", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def until(condition: object) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def contents(address: str, partition: int) -> list[str]:
    with api.connect(address) as db:
        end = db.admin.topics.get("orders").partitions[partition].end
        with db.consume("orders", partitions=[partition], start="earliest") as consumer:
            found: list[str] = []
            while len(found) < end:
                found += [record.value.decode().split()[0] for record in consumer.poll(1000, timeout=10)]
            return found


def test_a_backup_under_load_has_all_that_was_acknowledged_before_it(tmp_path: Path) -> None:
    data, backup, new = tmp_path / "data", str(tmp_path / "backup"), tmp_path / "new"
    with BrokerProcess(data, **SMALL) as process:
        address = process.ready().address("rustlog")
        with api.connect(address) as db:
            db.admin.topics.create("orders", partitions=PARTITIONS)
        with Load(address) as load:
            # Tables have a part, and what they have is gone from the journal.
            until(lambda: sequences(OsFiles(str(data)))[0] > 2)
            before = list(load.acknowledged)
            made = ok("backup", "create", backup, "--server", address)
            after = len(load.acknowledged)
        assert after > len(before), "there was no load meanwhile"
        assert not os.path.exists(data / "backup.tmp")
    assert any(path.suffix == ".parquet" for path in Path(backup).rglob("*"))
    assert ok("backup", "verify", backup)["position"] == made["position"]
    ok("restore", backup, "--data-dir", str(new))

    history = History()
    known = {(append.partition, append.ids[0]): append.offset for append in before}
    for partition, ids in load.sent:
        append = history.invoke("load", "append", Place("orders", partition), ids)
        if (partition, ids[0]) in known:
            history.acknowledge(append, offset=known[partition, ids[0]])
    history.acknowledge(history.invoke("test", "kill"))
    with BrokerProcess(new, **SMALL) as process:
        address = process.ready().address("rustlog")
        for partition in range(PARTITIONS):
            ids = contents(address, partition)
            history.note("reader", "contents", Place("orders", partition), ids, offset=0, end=len(ids))
        with api.connect(address) as db:  # it goes on where the backup ends
            end = db.admin.topics.get("orders").partitions[0].end
            assert db.produce("orders", "more", partition=0).offset == end
    assert check(history) == []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A broker with security on: its data directory and address."""
    data = tmp_path_factory.mktemp("backup") / "data"
    done = penstock("users", "add", "ada", "--role", "admin", "--generate", "--data-dir", str(data))
    (data.parent / "ada").write_text(done.stdout)
    with BrokerProcess(data, PENSTOCK_SECURITY__MODE="on") as process:
        yield str(data), process.ready().address("rustlog")


def test_on_the_machine_itself_it_takes_no_login_and_elsewhere_an_operators(
    place: tuple[str, str], tmp_path: Path
) -> None:
    data, address = place
    login = ("--user", "ada", "--password-file", str(Path(data).parent / "ada"))
    done = penstock("backup", "create", "b", "--server", address, *login)
    assert done.returncode == 1 and "may not admin" in done.stderr, done
    ok("backup", "create", "b", "--data-dir", data)
    done = penstock("backup", "create", "b", "--data-dir", data)
    assert done.returncode == 1 and "there is a backup already" in done.stderr
    ok("restore", "b", "--data-dir", str(tmp_path / "new"))
    users = ok_list("users", "list", "--data-dir", str(tmp_path / "new"))
    assert [user["name"] for user in users] == ["ada"]


def ok_list(*arguments: str) -> list[dict[str, str]]:
    done = penstock(*arguments, "--output", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def test_a_stopped_broker_is_copied_too(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    penstock("users", "add", "ada", "--generate", "--data-dir", data)
    made = ok("backup", "create", "b", "--data-dir", data)
    assert ok("backup", "verify", "b")["position"] == made["position"]
    assert not os.path.exists(os.path.join(data, "backup.tmp"))


def test_what_is_not_whole_is_refused(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    penstock("users", "add", "ada", "--generate", "--data-dir", data)
    (tmp_path / "broken" / "data").mkdir(parents=True)
    for command in (("backup", "verify", "broken"), ("restore", "broken", "--data-dir", "new")):
        done = penstock(*command)
        assert done.returncode == 1 and "broken off" in done.stderr, done
    ok("backup", "create", "broken", "--data-dir", data)  # it is begun again
    done = penstock("restore", "broken", "--data-dir", data)
    assert done.returncode == 1 and "is not empty" in done.stderr
    journal = next((tmp_path / "broken" / "data" / "journal").iterdir())
    content = bytearray(journal.read_bytes())
    content[5000] ^= 1
    journal.write_bytes(content)
    for command in (("backup", "verify", "broken"), ("restore", "broken", "--data-dir", "new")):
        done = penstock(*command)
        assert done.returncode == 1 and "is not what was backed up" in done.stderr, done
    assert not os.path.exists("new")


@pytest.mark.parametrize("name", ["../out", "/etc/x", "a//b", "a/./b", ""])
def test_no_name_in_a_manifest_becomes_a_path_outside(tmp_path: Path, name: str) -> None:
    entry = {"path": name, "size": 0, "sha256": ""}
    manifest = {"format": 1, "version": "0", "created": "", "position": 0, "files": [entry]}
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "manifest.json").write_text(json.dumps(manifest))
    done = penstock("restore", "b", "--data-dir", "new")
    assert done.returncode == 1 and "no backup has a file of this name" in done.stderr
    assert not os.path.exists("new")
