"""The engine of a replica keeps the contract of every engine: on a journal in memory, and on librdkafka's mock
cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.crash.simdisk import SimDisk
from tests.log.contract import EngineContract
from tests.log.harness import Harness
from tests.log.kafka.mock_cluster import MockCluster
from tests.log.kafka.replica_harness import ReplicaHarness
from tests.log.kafka.sim_journal import SimJournal

from penstock.log.files import OsFiles
from penstock.log.kafka.client import KafkaJournal


class TestOnSimulatedJournal(EngineContract):
    @pytest.fixture
    def log(self) -> Iterator[Harness]:
        harness = ReplicaHarness(SimJournal(), SimDisk())
        yield harness
        harness.close()


class WarmJournal(KafkaJournal):
    """A journal whose producers were made a while ago: Kafka takes half a second to give each its id."""

    def __init__(self, warm: deque[Producer], bootstrap: str, topic: str) -> None:
        super().__init__({"bootstrap.servers": bootstrap}, topic, 0, message_bytes=80 << 20, delivery_seconds=10)
        self._warm = warm
        while len(warm) < 12:
            warm.append(super().new_producer())

    def new_producer(self, **_: Any) -> Producer:
        return self._warm.popleft()


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with MockCluster(1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def warm() -> Iterator[deque[Producer]]:
    producers: deque[Producer] = deque()
    yield producers
    while producers:
        producers.pop().close()


@pytest.mark.process  # librdkafka's own brokers, with sockets
class TestOnMockCluster(EngineContract):
    @pytest.fixture
    def log(self, cluster: MockCluster, warm: deque[Producer], tmp_path: Path) -> Iterator[Harness]:
        journal = WarmJournal(warm, cluster.bootstrap, cluster.new_topic())
        harness = ReplicaHarness(journal, OsFiles(str(tmp_path)))
        yield harness
        harness.close()
        journal.close()
