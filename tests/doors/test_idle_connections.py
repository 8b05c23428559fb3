"""A connection whose client may be waiting for something is kept, however long it says nothing; one that has not even
said who it is, is not. What becomes of either after `limits.idle_seconds`: `tests/transport/test_tcp_connection.py`."""

from __future__ import annotations

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.blipmq.peer import Peer as BlipMq
from tests.doors.flymq.peer import Peer as FlyMq
from tests.doors.kimberlite.peer import Peer as Kimberlite
from tests.doors.rustlog.peer import Peer as RustLog


def test_a_client_of_rustlog_or_flymq_is_kept_from_the_first_byte_on(fixture: BrokerFixture) -> None:
    assert RustLog(fixture).session.long_lived and FlyMq(fixture).session.long_lived


@pytest.mark.parametrize("version", [1, 2])
def test_a_subscriber_of_blipmq_is_kept_and_a_stranger_is_not(fixture: BrokerFixture, version: int) -> None:
    assert not BlipMq(fixture, 0).session.long_lived
    assert BlipMq(fixture, version).session.long_lived


def test_a_client_of_kimberlite_is_kept_once_it_has_greeted(fixture: BrokerFixture) -> None:
    assert not Kimberlite(fixture, greets=False).session.long_lived
    assert Kimberlite(fixture).session.long_lived
