"""A flipped bit in a table of the real broker: no reader gets it as data, the operator is told where it is, and
everything beside it is served."""

from __future__ import annotations

import os
import re
import signal
import stat
import urllib.request
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from tests.e2e.test_kimberlite_tenants import flight_log
from tests.e2e.test_tables import SMALL, fill, handed_over, health, until
from tests.launcher import BrokerProcess, penstock

from penstock.clients.flymq import Client as FlyMq
from penstock.clients.flymq import FlyMqError
from penstock.clients.kimberlite import KimberliteClient, KimberliteError
from penstock.clients.rustlog import Client as RustLog
from penstock.clients.rustlog import ServerError
from penstock.flight.connect import connect
from penstock.flight.errors import FlightLogError
from penstock.flight.log import Log, TopicPartition

PLACE = TopicPartition("orders", 0)


def fill_randomly(client: RustLog, topic: str) -> None:
    """300 records. Where all bytes are alike, a flipped bit of compressed ones may change nothing."""
    random = Random(1)
    for first in range(0, 300, 20):
        values = [b"%06d" % number + random.randbytes(400).hex().encode() for number in range(first, first + 20)]
        client.produce(topic, 0, values)


def first_file(folder: Path) -> Path:
    """The file with the first offsets of the topic."""
    return min((folder / "tables/default/default").glob("orders-*/partition=0/*.parquet"))


def flip(path: Path) -> None:
    """A bit of the values."""
    column = pq.read_metadata(path).row_group(0).column(1)
    assert column.path_in_schema == "value"
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 5] ^= 1
    path.write_bytes(data)


def metric(broker: BrokerProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{broker.address('http')}/metrics") as answer:
        found = re.search(rf"^penstock_{name}(?:_total)? (\S+)$", answer.read().decode(), re.M)
    assert found is not None, name
    return float(found[1])


def test_damage_is_told_through_every_door_and_nothing_else_is_lost(tmp_path: Path) -> None:
    # Files are not merged here, so that there is one that is damaged and others that are not.
    slow = SMALL | {"PENSTOCK_TABLES__CARE_SECONDS": "3600", "PENSTOCK_KIMBERLITE__TENANTS": "1=default"}
    with BrokerProcess(tmp_path, "--listen", "flight=127.0.0.1:0", **slow) as broker:
        broker.ready()
        with (
            RustLog(*broker.endpoint("rustlog")) as rustlog,
            FlyMq(*broker.endpoint("flymq")) as flymq,
            KimberliteClient("{}:{}".format(*broker.endpoint("kimberlite")), tenant=1) as kimberlite,
        ):
            for name in ("orders", "other"):
                rustlog.create_topic(name, 1)
                fill_randomly(rustlog, name)
            handed_over(tmp_path)
            path = first_file(tmp_path)
            whole = path.read_bytes()
            flip(path)

            with pytest.raises(ServerError, match="table"):
                rustlog.fetch("orders", 0, 0)
            with pytest.raises(FlyMqError, match="table"):
                flymq.fetch("orders", 0, 0, 10)
            said = str(health(broker)["tables"])
            assert str(path) in said and "topic 'orders', partition 0" in said
            found = re.search(r"offsets (\d+) to (\d+) of topic", said)
            assert found is not None and int(found[1]) == 0
            end = int(found[2]) + 1
            with pytest.raises(FlightLogError, match=re.escape(str(path))):
                list(flight_log(broker).read(PLACE, 0, 300, ["value"]))
            with pytest.raises(KimberliteError):
                kimberlite.query("SELECT count(*) AS n FROM orders WHERE value LIKE '%1%'")
            assert metric(broker, "tables_damaged") == 1 and metric(broker, "table_damaged_reads") >= 3

            # What is beside it: later offsets, other columns, other topics, and writing.
            assert rustlog.fetch("orders", 0, end).records[0].payload.startswith(b"%06d" % end)
            assert flymq.fetch("orders", 0, end, 1).records[0].offset == end
            assert sum(map(len, flight_log(broker).read(PLACE, 0, 300, ["offset", "timestamp"]))) == 300
            assert rustlog.fetch("other", 0, 0).records[0].payload.startswith(b"000000")
            assert rustlog.produce("orders", 0, [b"next"]).base_offset == 300
        broker.signal(signal.SIGTERM)
        code, _, log = broker.finish()
    assert code == 0 and len(re.findall(rf"{re.escape(str(path))} is damaged", log)) >= 1

    with pytest.raises(FlightLogError, match=f"offsets 0 to {end - 1} of topic 'orders'"):
        list(directory_log(tmp_path).read(PLACE, 0, 300, ["value"]))
    done = penstock("table", "verify", "--data-dir", str(tmp_path))
    assert done.returncode == 1 and f"partition 0, offsets 0 to {end - 1}, " in done.stdout
    done = penstock("table", "repair", "--yes", "--data-dir", str(tmp_path))
    assert done.returncode == 1 and f"NOT rebuilt: partition 0, offsets 0 to {end - 1}" in done.stdout
    path.write_bytes(whole)
    done = penstock("table", "verify", "--data-dir", str(tmp_path))
    assert done.returncode == 0, done.stdout


def test_a_running_broker_repairs_what_the_journal_has_and_serves_meanwhile(tmp_path: Path) -> None:
    """A topic that has no table keeps the segments, so that all records of the other one are still there."""
    slow = SMALL | {"PENSTOCK_TABLES__CARE_SECONDS": "3600"}
    with BrokerProcess(tmp_path, **slow) as broker:
        broker.ready()
        with RustLog(*broker.endpoint("rustlog")) as client:
            for name in ("kept", "orders"):
                client.create_topic(name, 1)
            switched = penstock("topic", "set", "kept", "--table", "off", "--data-dir", str(tmp_path))
            assert switched.returncode == 0, switched.stderr
            for first in range(0, 300, 20):
                client.produce("kept", 0, [b"x" * 100])
                client.produce("orders", 0, [b"%06d" % number + b"." * 800 for number in range(first, first + 20)])
            until(lambda: len(list((tmp_path / "tables").rglob("*.parquet"))) >= 3)
            path = first_file(tmp_path)
            flip(path)
            done = penstock("table", "verify", "--data-dir", str(tmp_path))
            assert done.returncode == 1 and str(path.name) in done.stdout
            done = penstock("table", "repair", "--yes", "--data-dir", str(tmp_path))
            assert done.returncode == 0, done.stdout + done.stderr
            assert "rebuilt: partition 0, offsets 0 to" in done.stdout and "sound" in done.stdout
            assert not path.exists() and health(broker)["tables"] == "ok"
            assert penstock("table", "verify", "--data-dir", str(tmp_path)).returncode == 0
            done = penstock("table", "repair", "--yes", "--data-dir", str(tmp_path))
            assert done.returncode == 0 and "nothing to repair" in done.stdout
            assert client.fetch("orders", 0, 0).records[0].payload.startswith(b"000000")
            assert client.produce("orders", 0, [b"next"]).base_offset == 300


def directory_log(folder: Path) -> Log:
    return connect({"path": str(folder)})


def test_tables_are_for_the_brokers_user_only(tmp_path: Path) -> None:
    """Whatever the umask, and whoever may look into the data directory; those of earlier versions are changed."""
    root = tmp_path / "data"
    root.mkdir()
    root.chmod(0o755)
    before = os.umask(0)
    try:
        with BrokerProcess(root, **SMALL) as broker, RustLog(*broker.ready().endpoint("rustlog")) as client:
            client.create_topic("orders", 1)
            fill(client, "orders", 300)
            handed_over(root)
        assert open_to_others(root / "tables") == []
        for path in [root / "tables", *(root / "tables").rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        with BrokerProcess(root, **SMALL) as broker:
            broker.ready()
            until(lambda: not open_to_others(root / "tables"))
    finally:
        os.umask(before)


def open_to_others(root: Path) -> list[tuple[str, int]]:
    found = []
    for path in [root, *root.rglob("*")]:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except FileNotFoundError:  # files come and go
            continue
        if mode != (0o700 if path.is_dir() else 0o600):
            found.append((str(path), mode))
    return found
