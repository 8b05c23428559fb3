"""Closed journal files become tables, and the doors do not notice: the same offsets, bytes, keys and times, after
restarts and kills, with retention over both, and until the topic is deleted."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess, penstock
from tests.preloaded import STARTED_WORKERS
from tests.process_stats import workers

from penstock.clients.blipmq import Client as BlipMq
from penstock.clients.flymq import Client as FlyMq
from penstock.clients.rustlog import Client as RustLog
from penstock.clients.rustlog import ClientError, ServerError
from penstock.wire.rustlog.messages import FetchedRecord

SMALL = {
    "PENSTOCK_TABLES__ENABLED": "true",
    "PENSTOCK_TABLES__CARE_SECONDS": "0.3",
    "PENSTOCK_TABLES__KEEP_SECONDS": "0",
    "PENSTOCK_LOG__FILE_BYTES": "64KiB",
    "PENSTOCK_LOG__SNAPSHOT_BYTES": "64KiB",
    "PENSTOCK_LOG__TAIL_BYTES": "0",
    "PENSTOCK_LOG__DURABILITY": "written",
    "PENSTOCK_QUEUES__TTL_SECONDS": "0",
    "PENSTOCK_QUEUES__CAPACITY": "0",
}


@contextmanager
def running(folder: Path, **environment: str) -> Iterator[BrokerProcess]:
    with BrokerProcess(folder, **SMALL | environment) as broker:
        try:
            yield broker.ready()
        except BaseException:
            if broker.process.poll() is None:
                broker.process.kill()
                print(broker.finish()[2])  # its own account of what went wrong
            raise


def until(said: Callable[[], object], seconds: float = 300.0) -> None:
    give_up = time.monotonic() + seconds
    while not said():
        assert time.monotonic() < give_up, "it does not come true"
        time.sleep(0.05)


def journal_files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "journal").glob("*.journal"))


def journal_bytes(folder: Path) -> int:
    size = 0
    for name in journal_files(folder):
        with suppress(FileNotFoundError):  # removed since the folder was listed
            size += (folder / "journal" / name).stat().st_size
    return size


def table_files(folder: Path) -> list[Path]:
    return list((folder / "tables").rglob("*.parquet"))


def fill(client: RustLog, topic: str, count: int = 400, size: int = 800) -> None:
    for first in range(0, count, 20):
        client.produce(topic, 0, [b"%06d" % number + b"." * size for number in range(first, first + 20)])


def handed_over(folder: Path) -> None:
    """Wait until the first journal files are gone: what they held is in tables only.

    A first file with nothing but the creation of topics goes before there is any table.
    """
    until(lambda: table_files(folder) and journal_files(folder)[0] > "00000000000000000001.journal")


def read_all(client: RustLog, topic: str, offset: int = 0) -> list[FetchedRecord]:
    found: list[FetchedRecord] = []
    while records := client.fetch(topic, 0, offset, 100_000).records:
        found += records
        offset = records[-1].offset + 1
    return found


def health(broker: BrokerProcess) -> dict[str, object]:
    with urllib.request.urlopen(f"http://{broker.address('http')}/health") as answer:
        told = json.load(answer)
    assert isinstance(told, dict)
    return told


def test_old_offsets_come_from_the_table_through_every_door(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        with (
            RustLog(*broker.endpoint("rustlog")) as rustlog,
            FlyMq(*broker.endpoint("flymq")) as flymq,
            BlipMq(*broker.endpoint("blipmq"), key="any") as blipmq,
        ):
            rustlog.create_topic("filler", 1)
            subscription = blipmq.subscribe("orders")
            metadata = [flymq.produce("orders", b"value-%d" % i, b"key-%d" % i if i % 2 else None) for i in range(50)]
            flymq.produce_with_ttl("orders", b"short", 1, b"gone")
            before = read_all(rustlog, "orders")
            first = [flymq.consume("orders", i) for i in range(50)]
            fill(rustlog, "filler")
            handed_over(tmp_path)
            assert table_files(tmp_path)
            assert [record.payload for record in before[:50]] == [b"value-%d" % i for i in range(50)]
            assert [record.offset for record in before[:50]] == [told.offset for told in metadata]
            assert read_all(rustlog, "orders") == before[:50]
            assert [flymq.consume("orders", i) for i in range(50)] == first
            fetched = flymq.fetch("orders", 0, 10, 5)
            assert [record.key for record in fetched.records] == [None, b"key-11", None, b"key-13", None]
            values = [message.value for message in subscription.poll_many(50)]
            assert values == [b"value-%d" % i for i in range(50)]
            assert rustlog.describe_topic("orders").partitions[0].high_watermark == 51
            assert health(broker)["tables"] == "ok"
            filler = read_all(rustlog, "filler")
        broker.signal(signal.SIGKILL)
        broker.finish()
    assert penstock("log", "verify", "--data-dir", str(tmp_path)).returncode == 0
    os.rename(tmp_path / "tables", tmp_path / "elsewhere")
    with running(tmp_path) as broker, RustLog(*broker.endpoint("rustlog")) as rustlog:
        with pytest.raises(ServerError, match="table"):
            rustlog.fetch("orders", 0, 0)
        assert "there is no table" in str(health(broker)["tables"])
        assert health(broker)["writable"] is True
        assert rustlog.produce("orders", 0, [b"next"]).base_offset == 51
        assert rustlog.fetch("orders", 0, 51).records[0].payload == b"next"
        os.rename(tmp_path / "elsewhere", tmp_path / "tables")
        assert read_all(rustlog, "orders")[:50] == before[:50]
        assert read_all(rustlog, "filler") == filler
        broker.signal(signal.SIGTERM)
        assert broker.finish()[0] == 0


def libraries(pid: int) -> str:
    """All files that a process has mapped."""
    return Path(f"/proc/{pid}/maps").read_text()


def test_after_a_start_the_first_read_of_a_table_finds_everything_loaded(tmp_path: Path) -> None:
    with running(tmp_path) as broker, RustLog(*broker.endpoint("rustlog")) as client:
        assert "libarrow" not in libraries(broker.process.pid)  # there is no table, and nobody waits for it
        client.create_topic("filler", 1)
        fill(client, "filler")
        handed_over(tmp_path)
    with running(tmp_path, PENSTOCK_SQL__START="connection", **STARTED_WORKERS) as broker:
        pid = broker.process.pid
        (sql,) = workers(pid, "penstock.workers.sql.main")
        assert "deltalake" in libraries(pid) and "deltalake" in libraries(sql) and "duckdb" in libraries(sql)
        with RustLog(*broker.endpoint("rustlog")) as client:
            assert client.fetch("filler", 0, 0).records[0].payload.startswith(b"000000")
        assert "pandas" not in libraries(pid)  # Arrow loads it wherever it is installed, and that takes a second


def test_retention_goes_over_table_and_journal(tmp_path: Path) -> None:
    with running(tmp_path) as broker, RustLog(*broker.endpoint("rustlog")) as client:
        client.create_topic("filler", 1)
        fill(client, "filler")
        handed_over(tmp_path)
    files = len(table_files(tmp_path))
    assert files
    with (
        running(tmp_path, PENSTOCK_TOPICS__RETENTION_SECONDS="2") as broker,
        RustLog(*broker.endpoint("rustlog")) as client,
    ):

        def start() -> int:
            return client.describe_partition("filler", 0).log_start_offset or 0

        until(lambda: start() > 0)
        until(lambda: len(table_files(tmp_path)) < files)
        client.produce("filler", 0, [b"new"])
        offset = start()
        try:
            found = read_all(client, "filler", offset)
        except ClientError:  # retention goes on meanwhile
            found = read_all(client, "filler", start())
        assert [record.offset for record in found] == list(range(found[0].offset, found[-1].offset + 1))
        assert found[-1].payload == b"new"


def test_the_process_that_builds_comes_back_when_killed_and_ends_with_the_broker(tmp_path: Path) -> None:
    def children(parent: int) -> list[int]:
        return [
            int(pid)
            for pid in os.listdir("/proc")
            if pid.isdigit() and (stat := _stat(int(pid))) and stat[1] == str(parent)
        ]

    with running(tmp_path, **STARTED_WORKERS) as broker:
        with RustLog(*broker.endpoint("rustlog")) as client:
            client.create_topic("filler", 1)
            assert children(broker.process.pid) == []  # it is not started before there is something to do
            fill(client, "filler")
            until(lambda: children(broker.process.pid))
            for _ in range(2):
                (child,) = children(broker.process.pid)
                os.kill(child, signal.SIGKILL)
                until(lambda: set(children(broker.process.pid)) - {child})  # noqa: B023 - it is asked at once
            handed_over(tmp_path)
            assert [record.payload[:6] for record in read_all(client, "filler")[:400]] == [
                b"%06d" % number for number in range(400)
            ]
        with FlyMq(*broker.endpoint("flymq")) as flymq:
            flymq.delete_topic("filler")
        until(lambda: not any("filler-" in str(path) for path in (tmp_path / "tables").rglob("*")))
        (child,) = children(broker.process.pid)
        broker.signal(signal.SIGKILL)
        broker.finish()
        until(lambda: (_stat(child) or "Z")[0] == "Z")


def _stat(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
