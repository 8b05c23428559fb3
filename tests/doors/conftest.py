"""Fixtures of all doors: a broker in memory. Where a test needs a special one, its module has its own `fixture`."""

from __future__ import annotations

import pytest
from tests.broker.broker_fixture import BrokerFixture


@pytest.fixture
def fixture() -> BrokerFixture:
    return BrokerFixture()
