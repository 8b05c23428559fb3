"""Records that are in a table alone: written to small segments, and waited for until those are deleted."""

from __future__ import annotations

import time
from pathlib import Path

from tests.console.demo import Api
from tests.launcher import BrokerProcess

from penstock.clients.rustlog import Client as RustLog

SETTINGS = {
    "PENSTOCK_TABLES__ENABLED": "true",
    "PENSTOCK_LOG__FILE_BYTES": "64KiB",
    "PENSTOCK_LOG__SNAPSHOT_BYTES": "64KiB",
    "PENSTOCK_LOG__TAIL_BYTES": "0",
}
SECONDS = 90


def move_to_tables(broker: BrokerProcess, data: Path) -> None:
    """Have all that is written by now in tables, and in no segment."""
    newest = max(segments(data))
    deadline = time.monotonic() + SECONDS
    api = Api(f"http://{broker.address('http')}")
    with RustLog(*broker.endpoint("rustlog")) as client:
        if "filler" not in {topic.name for topic in client.list_topics()}:
            client.create_topic("filler", 1)
        while min(segments(data)) <= newest:  # one more each time: snapshots come with what is written
            assert time.monotonic() < deadline, api("GET", "/tables")
            client.produce("filler", 0, [bytes(20_000)] * 2)
            time.sleep(0.3)  # not less: each second one is a segment more to move


def segments(data: Path) -> list[str]:
    return [path.name for path in (data / "journal").glob("*.journal")]
