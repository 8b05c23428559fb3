"""`penstock storage copy` between a data directory and three real Kafka nodes, killed on the way."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from tests.kafka.brokers import Broker, new_url
from tests.kafka.kraft import Cluster
from tests.launcher import COMMAND, WITHOUT_SETTINGS

pytestmark = pytest.mark.process

SMALL = {
    "PENSTOCK_TABLES__ENABLED": "true",
    "PENSTOCK_LOG__FILE_BYTES": "65536",
    "PENSTOCK_LOG__SNAPSHOT_BYTES": "65536",
    "PENSTOCK_LOG__ROLL_SECONDS": "1",
}


def storage_copy(*arguments: object) -> subprocess.Popen[str]:
    command = [*COMMAND, "storage", "copy", *map(str, arguments), "--output", "json"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**WITHOUT_SETTINGS, **SMALL}
    )


def same(*arguments: object) -> dict[str, object]:
    """The output about a complete copy, or about a compared one."""
    process = storage_copy(*arguments)
    told, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    found: dict[str, object] = json.loads(told)
    return found


def refusal(*arguments: object) -> str:
    process = storage_copy(*arguments)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 1
    return errors


def test_there_and_back(cluster: Cluster, tmp_path: Path) -> None:
    values = [f"{number}-{'x' * 2000}" for number in range(400)]
    url = new_url(cluster, delivery_seconds="3")
    lake, files, back = tmp_path / "tables", tmp_path / "files", tmp_path / "back"
    there = (files, url, "--tables-to", lake)
    brokers = [Broker(tmp_path, "files", "", **{**SMALL, "PENSTOCK_TABLES__URL": ""}).start()]
    try:
        brokers[0].ready().write(*values)
        give_up = time.monotonic() + 120
        while len(list(files.glob("journal/*.journal"))) > 3 or not list(files.glob("tables/**/*.parquet")):
            assert time.monotonic() < give_up, "segments stay although tables have them"
            brokers[0].write("more")
            time.sleep(0.5)
        expected = brokers[0].values()
        assert "is in use by process" in refusal(*there)
        brokers[0].kill()
        killed = storage_copy(*there)
        while not list(lake.glob("**/*.parquet")):  # it is at work
            time.sleep(0.01)
        killed.kill()
        killed.communicate()
        copied = same(*there)
        assert copied["same"] is True
        assert int(str(copied["table_files"])) > 1
        assert same(*there, "--verify") == copied
        brokers.append(Broker(tmp_path, "a", url, **SMALL).start().ready())
        assert brokers[1].values() == expected
        assert "a broker owns the journal on Kafka" in refusal(*there, "--verify")
        brokers[1].write("there")
        brokers[1].kill()
        returned = same(url, back, "--tables-from", lake)
        assert returned["records"]
        brokers.append(Broker(tmp_path, "back", "", **{**SMALL, "PENSTOCK_TABLES__URL": ""}).start().ready())
        assert brokers[2].values() == [*expected, "there"]
    finally:
        for broker in brokers:
            broker.kill()
