"""A real journal that is trimmed behind tables and snapshots, and brokers with an empty disk that start from them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.kafka.brokers import Broker, new_url
from tests.kafka.kraft import Cluster

pytestmark = pytest.mark.process

SMALL = {
    "PENSTOCK_TABLES__ENABLED": "true",
    "PENSTOCK_LOG__FILE_BYTES": "65536",
    "PENSTOCK_LOG__SNAPSHOT_BYTES": "65536",
    "PENSTOCK_LOG__ROLL_SECONDS": "1",
}
VALUES = [f"{number}-{'x' * 2000}" for number in range(300)]


def first_offset(cluster: Cluster, journal: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": "test", "log_level": 0})
    try:
        bounds = consumer.get_watermark_offsets(TopicPartition(f"{journal}.journal", 0), timeout=20)
        assert bounds is not None
        return int(bounds[0])
    finally:
        consumer.close()


def test_the_journal_is_trimmed_and_an_empty_disk_is_enough(cluster: Cluster, tmp_path: Path) -> None:
    url = new_url(cluster, delivery_seconds="3")
    brokers = [Broker(tmp_path, "a", url, **SMALL).start()]
    try:
        brokers[0].ready().write(*VALUES)
        give_up = time.monotonic() + 120
        while first_offset(cluster, brokers[0].journal) < 100:
            assert time.monotonic() < give_up, "the journal is not trimmed"
            brokers[0].write("more")
            time.sleep(0.5)
        expected = brokers[0].values()
        assert expected[: len(VALUES)] == VALUES
        brokers[0].kill()
        brokers.append(Broker(tmp_path, "b", url, **SMALL).start().ready())
        assert brokers[1].values() == expected
        brokers[1].write("last")
        brokers[1].kill()
        brokers[0].start().ready()  # its directory goes on, whether the journal has left it behind or not
        assert brokers[0].values() == [*expected, "last"]
    finally:
        for broker in brokers:
            broker.kill()
