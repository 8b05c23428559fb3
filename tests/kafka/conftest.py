"""Tests on real Kafka nodes. They run where the jars are: `make test-kafka` gets them, and says where they lie."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kafka.kraft import JARS, Cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not JARS:
        for item in items:
            if "tests/kafka/" in item.nodeid:
                item.add_marker(pytest.mark.skip(reason="needs Kafka's jars: make test-kafka"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("kafka"), 3) as cluster:
        yield cluster
