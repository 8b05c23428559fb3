"""One broker for all of these tests, with every TCP door; topics have names of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.launcher import BrokerProcess

import penstock
from penstock.connection import Connection


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("connection")) as process:
        yield process.ready()


@pytest.fixture(scope="package")
def address(broker: BrokerProcess) -> str:
    """One that is no door of what is sent to it: every TCP door is behind every TCP port."""
    return broker.address("rustlog")


@pytest.fixture
def db(address: str) -> Iterator[Connection]:
    with penstock.connect(address, timeout=10) as connection:
        yield connection
