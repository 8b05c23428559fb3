"""librdkafka's mock cluster: Kafka brokers on this machine's loopback, in this process, without Java.

confluent-kafka has no names for it, so its own library is asked."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path
from typing import Any

import confluent_kafka

from penstock.log.kafka.client import snapshots_topic

PRODUCER = 0
_numbers = itertools.count()


def _library() -> Any:
    beside = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library: Any = ctypes.CDLL(str(next(beside.glob("librdkafka*.so*"))))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


class MockCluster:
    def __init__(self, brokers: int) -> None:
        self._library = library = _library()
        text = ctypes.create_string_buffer(512)
        self._client = ctypes.c_void_p(
            library.rd_kafka_new(PRODUCER, ctypes.c_void_p(library.rd_kafka_conf_new()), text, ctypes.c_size_t(512))
        )
        assert self._client.value, text.value
        self._cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(self._client, brokers))
        self.brokers = brokers
        self.bootstrap: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def __enter__(self) -> MockCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def new_topic(self) -> str:
        """A topic of one partition, which nobody has used, and that of its snapshots beside it."""
        topic = self.create_topic(f"test-{next(_numbers)}.journal", 1)
        self.create_topic(snapshots_topic(topic), 1)
        return topic

    def create_topic(self, topic: str, partitions: int) -> str:
        name, replicas = topic.encode(), min(3, self.brokers)
        assert not self._library.rd_kafka_mock_topic_create(self._cluster, name, partitions, replicas)
        return topic

    def stop(self) -> None:
        """No broker can be reached."""
        for broker in range(1, self.brokers + 1):
            self._library.rd_kafka_mock_broker_set_down(self._cluster, broker)

    def start(self) -> None:
        for broker in range(1, self.brokers + 1):
            self._library.rd_kafka_mock_broker_set_up(self._cluster, broker)
