"""The Flight process and our client through what happens to a broker: its process is killed, it is killed, it is
stopped, it is ahead of its files."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.launcher import BrokerProcess, other_doors, penstock
from tests.ports import steady_port
from tests.preloaded import STARTED_WORKERS
from tests.workers.flight.seeded_flight_broker import OPEN, made
from tests.workers.flight.test_flight import flight_process_of

from penstock.broker.names import DEFAULT_SCOPE
from penstock.clients.rustlog import Client
from penstock.flight.client import FlightLog
from penstock.flight.errors import LogUnavailable, OffsetsLost, RequestRefused, TopicMissing
from penstock.flight.log import TopicPartition
from penstock.flight.options import BrokerOptions
from penstock.log.engine import Bounds

PLACE = TopicPartition("t", 0)


def log_of(broker: BrokerProcess, retries: int = 60) -> FlightLog:
    return FlightLog(BrokerOptions((broker.endpoint("flight"),), DEFAULT_SCOPE), retries=retries, retry_seconds=0.05)


def gone(pid: int, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while os.path.exists(f"/proc/{pid}") and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def offsets(batches: list[Any]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_read_survives_the_end_of_the_process_and_of_the_broker(tmp_path: Path) -> None:
    with made(tmp_path) as maker:
        maker.topic("t")
        for _ in range(12):
            maker.append("t", [os.urandom(MIB // 4) for _ in range(8)])
    # Of its own: while the broker is away, a client of a port given by the system could be given the same one.
    listen = ("--listen", f"flight=127.0.0.1:{(port := steady_port())}")
    with BrokerProcess(tmp_path, *listen, **STARTED_WORKERS) as broker:
        log = log_of(broker.ready())
        first = flight_process_of(broker)
        stream = log.read(PLACE, 0, 96, ["offset", "value"])
        found = [next(stream)]
        os.kill(first, signal.SIGKILL)
        found += [next(stream) for _ in range(4)]
        second = flight_process_of(broker)
        assert second != first and broker.process.poll() is None
        broker.signal(signal.SIGKILL)
        broker.finish()
        assert gone(second)  # nobody told it
        with BrokerProcess(tmp_path, *listen, **STARTED_WORKERS) as again:
            again.ready()
            found += list(stream)
            assert offsets(found) == list(range(96))
            third = flight_process_of(again)
            again.signal(signal.SIGTERM)
            code, _, errors = again.finish()
            assert code == 0 and gone(third) and "Traceback" not in errors
        with pytest.raises(LogUnavailable, match="Is it running"):
            log_of_port(port).topics()


def test_a_broker_waits_for_the_flight_process_of_one_that_was_killed(tmp_path: Path) -> None:
    listen = ("--listen", f"flight=127.0.0.1:{steady_port()}")
    with BrokerProcess(tmp_path, *listen, **STARTED_WORKERS) as broker:
        orphan = flight_process_of(broker.ready())
        os.kill(orphan, signal.SIGSTOP)  # it does not notice that the broker has gone, and keeps the port
        broker.signal(signal.SIGKILL)
        broker.process.wait()
        end = threading.Timer(1.5, os.kill, (orphan, signal.SIGKILL))
        end.start()
        try:
            with BrokerProcess(tmp_path, *listen, **STARTED_WORKERS) as again:
                assert log_of(again.ready()).topics() == {}
        finally:
            end.join()


def log_of_port(port: int, *others: int) -> FlightLog:
    servers = tuple(("127.0.0.1", one) for one in (port, *others))
    return FlightLog(BrokerOptions(servers, DEFAULT_SCOPE), retries=1)


MIB = 1 << 20


@pytest.mark.parametrize("durability", ["memory", "written", "synced"])
def test_what_was_acknowledged_can_be_read_at_once(tmp_path: Path, durability: str) -> None:
    with BrokerProcess(tmp_path, *OPEN, "--durability", durability) as broker:
        log = log_of(broker.ready())
        with Client(*broker.endpoint("rustlog")) as client:
            client.create_topic("t")
            for number in range(40):
                client.produce("t", 0, [b"%d" % number] * 5)
                start, end = log.bounds(["t"])[PLACE]
                assert (start, end) == (0, 5 * number + 5)
                batches = list(log.read(PLACE, end - 5, end, ["value", "offset"]))
                assert offsets(batches) == list(range(end - 5, end))
                assert batches[0].column("value")[0].as_py() == b"%d" % number


def test_our_client_says_what_is_wrong_and_what_to_do(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, *OPEN) as broker:
        log = log_of(broker.ready(), retries=1)
        with Client(*broker.endpoint("rustlog")) as client:
            client.create_topic("t", 2)
            client.produce("t", 0, [b"x"] * 10)
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            several = log_of_port(closed.getsockname()[1], broker.endpoint("flight")[1])
            assert several.topics() == log.topics() == {"t": 2}  # the second of the servers answers
        assert log.bounds(["t", "u"]) == {PLACE: Bounds(0, 10), TopicPartition("t", 1): Bounds(0, 0)}
        assert log.offsets_at({PLACE: 0, TopicPartition("t", 1): 0}) == {PLACE: 0, TopicPartition("t", 1): None}
        assert log.fitting({PLACE: 2}, {PLACE: 10}, 1 << 20) == {PLACE: 10}
        assert log.table("t") is None
        with pytest.raises(TopicMissing, match="Topic 'u' not found"):
            log.table("u")
        with pytest.raises(TopicMissing, match="Partition 7 not found"):
            list(log.read(TopicPartition("t", 7), 0, 1, ["value"]))
        with pytest.raises(TopicMissing, match="Schema 's' not found"):
            log.schema("s")
        with pytest.raises(RequestRefused, match="ends at offset 10"):
            list(log.read(PLACE, 0, 11, ["value"]))
        with pytest.raises(RequestRefused, match="the columns are"):
            list(log.read(PLACE, 0, 1, ["valeu"]))
        log.commit_offsets("g", {PLACE: 4})
        with Client(*broker.endpoint("rustlog")) as client:
            assert client.fetch_offset("g", "t", 0) == 4
        _stage_and_publish(log)
        flags = ["--listen", f"flight={broker.address('flight')}"]
        taken = penstock("serve", "--data-dir", str(tmp_path / "other"), *flags, *other_doors(flags[1:]))
        assert taken.returncode == 1 and "is taken by another program" in taken.stderr
        assert "--listen flight=" in taken.stderr


def _stage_and_publish(log: FlightLog) -> None:
    schema = pa.schema([("key", pa.string()), ("value", pa.string()), ("partition", pa.int32())])
    batch = pa.record_batch([pa.array(["a", "b"]), pa.array(["1", "2"]), pa.array([1, 1], pa.int32())], schema=schema)
    staged = log.stage("query", 1, "task-0", "t", iter([batch, batch]), schema)
    assert staged.rows == 4 and log.bounds(["t"])[TopicPartition("t", 1)] == Bounds(0, 0)
    published = log.publish("query", 1, [staged.ref])
    assert (published.rows, published.repeated) == (4, False)
    assert log.publish("query", 1, [staged.ref]).repeated
    (found,) = log.read(TopicPartition("t", 1), 0, 4, ["key", "value", "offset"])
    assert found.column("value").to_pylist() == [b"1", b"2", b"1", b"2"]
    other = log.stage("query", 2, "task-0", "t", iter([batch]), schema)
    log.discard("query", 2, [other.ref])
    with pytest.raises(RequestRefused):
        log.publish("query", 2, [other.ref])
    wrong = pa.schema([("value", pa.int64())])
    rows = pa.record_batch([pa.array([1])], schema=wrong)
    with pytest.raises(RequestRefused, match="value"):
        log.stage("query", 3, "task-0", "t", iter([rows]), wrong)


def test_retention_is_told_as_lost_offsets_and_reading_goes_on_while_files_go(tmp_path: Path) -> None:
    small = {
        "PENSTOCK_LOG__FILE_BYTES": "64KiB",
        "PENSTOCK_LOG__ENTRY_BYTES": "64KiB",
        "PENSTOCK_LOG__GROUP_BYTES": "64KiB",
        "PENSTOCK_LIMITS__RECORD_BYTES": "32KiB",
        "PENSTOCK_TOPICS__RETENTION_BYTES": "100000",
    }
    with BrokerProcess(tmp_path, *OPEN, "--durability", "written", **small) as broker:
        log = log_of(broker.ready())
        done = threading.Event()
        failures: list[Exception] = []
        reader = threading.Thread(target=_follow, args=(log, done, failures))
        with Client(*broker.endpoint("rustlog")) as client:
            client.create_topic("t")
            client.produce("t", 0, [bytes(5_000)])
            reader.start()
            for _ in range(60):
                client.produce("t", 0, [bytes(5_000)] * 4)
                time.sleep(0.05)
        done.set()
        reader.join()
        assert failures == []
        start = log.bounds(["t"])[PLACE].start
        assert start > 0
        with pytest.raises(OffsetsLost) as lost:
            list(log.read(PLACE, 0, start + 1, ["offset"]))
        assert lost.value.start >= start


def _follow(log: FlightLog, done: threading.Event, failures: list[Exception]) -> None:
    """Read everything again and again: nothing but what the log start has passed may be missing."""
    while not done.is_set():
        start, end = log.bounds(["t"])[PLACE]
        try:
            found = offsets(list(log.read(PLACE, start, end, ["offset"])))
        except OffsetsLost as lost:
            if lost.start <= start:
                failures.append(lost)
        except Exception as error:  # noqa: BLE001 - told by the test
            failures.append(error)
        else:
            if found != list(range(start, end)):
                failures.append(AssertionError((start, end, found)))


def test_the_past_comes_from_the_table_and_the_seam_does_not_show(tmp_path: Path) -> None:
    small = {
        "PENSTOCK_LOG__FILE_BYTES": "64KiB",
        "PENSTOCK_LOG__ENTRY_BYTES": "64KiB",
        "PENSTOCK_LOG__GROUP_BYTES": "64KiB",
        "PENSTOCK_LOG__SNAPSHOT_BYTES": "64KiB",
        "PENSTOCK_LIMITS__RECORD_BYTES": "32KiB",
        "PENSTOCK_TABLES__ENABLED": "true",
    }
    with BrokerProcess(tmp_path, *OPEN, "--durability", "written", **small) as broker:
        log = log_of(broker.ready())
        count = 0
        with Client(*broker.endpoint("rustlog")) as client:
            client.create_topic("t")
            end = time.monotonic() + 40
            while not ((info := log.table("t")) and info.ends[0] >= 400 and _first_journal_file(tmp_path) > 3):
                client.produce("t", 0, [b"%06d" % number + bytes(1_000) for number in range(count, count + 10)])
                count += 10
                assert time.monotonic() < end
                time.sleep(0.02)
        batches = list(log.read(PLACE, 0, count, ["offset", "value"]))
        assert offsets(batches) == list(range(count))
        values = [value for batch in batches for value in batch.column("value").to_pylist()]
        assert values == [b"%06d" % number + bytes(1_000) for number in range(count)]
        assert log.offsets_at({PLACE: 0}) == {PLACE: 0}
        (reached,) = log.fitting({PLACE: 0}, {PLACE: count}, 100_000).values()
        assert 50 <= reached <= count
        assert (info.gone_below, info.horizon, str(tmp_path) in info.url) == ({}, 0, True)


def _first_journal_file(data_dir: Path) -> int:
    return min(int(path.stem) for path in (data_dir / "journal").glob("*") if path.stem.isdigit())
