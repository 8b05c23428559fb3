"""The largest records by every way into the log, through a kill and the move to a table, and out of it again: with the
real broker and our own clients.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess, penstock

from penstock.broker.names import DEFAULT_SCOPE
from penstock.clients.flymq import Client as FlyMq
from penstock.clients.rustlog import Client as RustLog
from penstock.clients.rustlog import ClientError
from penstock.flight.client import FlightLog
from penstock.flight.log import TopicPartition
from penstock.flight.options import BrokerOptions
from penstock.wire.flymq.codec.fetched_records import MAX_FETCHED

ROOM = 200  # of a frame, for what is beside the record in requests that have more to say
SIZES = {"produce": MAX_FETCHED, "transaction": MAX_FETCHED - ROOM, "delayed": MAX_FETCHED - ROOM}
ENVIRONMENT = {
    "PENSTOCK_TABLES__ENABLED": "true",
    "PENSTOCK_TABLES__CARE_SECONDS": "0.3",
    "PENSTOCK_TABLES__KEEP_SECONDS": "0",
    "PENSTOCK_LOG__FILE_BYTES": "1MiB",  # a record is larger than a segment
    "PENSTOCK_LOG__SNAPSHOT_BYTES": "1MiB",
    "PENSTOCK_LOG__TAIL_BYTES": "0",
    "PENSTOCK_LOG__DURABILITY": "written",
}


def until(said: Callable[[], object], seconds: float = 60.0) -> None:
    give_up = time.monotonic() + seconds
    while not said():
        assert time.monotonic() < give_up, "it does not come true"
        time.sleep(0.05)


def a_value(number: int, size: int) -> bytes:
    return b"%d" % number + bytes(size - 1)


VALUES = [a_value(number, size) for number, size in enumerate(SIZES.values())]


def check_flymq(client: FlyMq) -> None:
    for offset, value in enumerate(VALUES):
        fetched = client.fetch("t", 0, offset, 10)
        assert [len(record.value) for record in fetched.records] == [len(value)]
        assert (fetched.records[0].value == value) is True
    assert (client.consume("t", 0).value == VALUES[0]) is True


def check_rustlog(client: RustLog) -> None:
    """Its frames are too small: each record is an error that names it, and the next one can be asked for."""
    for offset in range(len(VALUES)):
        with pytest.raises(ClientError, match=f"at offset {offset} does not fit a frame") as caught:
            client.fetch("t", 0, offset)
        assert caught.value.code == 413
    assert client.fetch("t", 0, len(VALUES)).next_offset >= len(VALUES)


def write_all(client: FlyMq) -> None:
    client.produce("t", VALUES[0])
    transaction = client.begin()
    client.produce_in_transaction(transaction, "t", VALUES[1])
    client.commit_transaction(transaction)
    client.produce_delayed("t", VALUES[2], 1)
    until(lambda: client.fetch("t", 0, 2, 1).records)


def test_the_largest_records_through_a_kill_and_the_move_to_a_table(tmp_path: Path) -> None:
    open_flight = ("--listen", "flight=127.0.0.1:0")
    with BrokerProcess(tmp_path, **ENVIRONMENT) as broker:
        with FlyMq(*broker.ready().endpoint("flymq")) as client:
            write_all(client)
        broker.signal(signal.SIGKILL)
        assert broker.finish()[0] == -signal.SIGKILL
    with BrokerProcess(tmp_path, *open_flight, **ENVIRONMENT) as broker:
        broker.ready()
        with FlyMq(*broker.endpoint("flymq")) as flymq, RustLog(*broker.endpoint("rustlog")) as rustlog:
            check_flymq(flymq)
            check_rustlog(rustlog)
            log = FlightLog(BrokerOptions((broker.endpoint("flight"),), DEFAULT_SCOPE), retries=60, retry_seconds=0.05)
            flymq.produce("t", bytes(2 << 20))  # closes the segment with the last of them
            until(lambda: (info := log.table("t")) and info.ends[0] >= len(VALUES))
            until(lambda: len(list((tmp_path / "journal").glob("*.journal"))) <= 2)
            check_flymq(flymq)
            check_rustlog(rustlog)
            read = log.read(TopicPartition("t", 0), 0, len(VALUES), ["offset", "value"])
            found = [value for batch in read for value in batch.column("value").to_pylist()]
            assert (found == VALUES) is True
            sizes = penstock("sql", "SELECT length(data) AS n FROM t", "--data-dir", str(tmp_path))
            for size in {*SIZES.values()}:
                assert str(size) in sizes.stdout, sizes
        broker.signal(signal.SIGTERM)
        code, _, errors = broker.finish()
        assert (code, "Traceback" in errors) == (0, False), errors[-2000:]
