"""The view with which another process reads: it has to find the same records as a fetch."""

from __future__ import annotations

import pytest
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.errors import PartitionNotFound, TopicNotFound
from penstock.broker.fetch.read_view import PartitionView
from penstock.broker.fetch.removal import NOTHING_REMOVED, RemovedRecords
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.broker.state.events import RecordsRemoved
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import Bounds


def fixture_with(partitions: int = 2, **settings: float) -> BrokerFixture:
    fixture = BrokerFixture()
    fixture.broker.topics.create(ME, DEFAULT_SCOPE, "t", partitions, TopicSettings(**settings))  # type: ignore[arg-type]
    fixture.broker.produce.append(ME, DEFAULT_SCOPE, "t", 0, [b"a", b"b", b"c"])
    fixture.commit()
    return fixture


def test_it_tells_bounds_and_what_was_removed_of_each_partition() -> None:
    fixture = fixture_with()
    fixture.broker.state_log.commit((RecordsRemoved(1, 0, [1], 0),))
    fixture.broker.produce.append(ME, DEFAULT_SCOPE, "t", 1, [b"not committed"])
    found = fixture.broker.fetch.read_view(ME, DEFAULT_SCOPE, "t")
    assert (found.topic.name, found.now, found.horizon) == ("t", fixture.now, 0)
    assert found.partitions == [
        PartitionView(0, Bounds(0, 3), RemovedRecords(0, frozenset({1}))),
        PartitionView(1, Bounds(0, 0), NOTHING_REMOVED),
    ]
    assert fixture.broker.fetch.read_view(ME, DEFAULT_SCOPE, "t", 1).partitions == found.partitions[1:]
    with pytest.raises(PartitionNotFound):
        fixture.broker.fetch.read_view(ME, DEFAULT_SCOPE, "t", 2)
    with pytest.raises(TopicNotFound):
        fixture.broker.fetch.read_view(ME, DEFAULT_SCOPE, "u")


def test_the_horizon_follows_the_topic_s_expiry() -> None:
    fixture = fixture_with(expiry_seconds=10.0)
    fixture.pass_time(30)
    assert fixture.broker.fetch.read_view(ME, DEFAULT_SCOPE, "t").horizon == fixture.now - 10_000_000


def test_bounds_of_many_topics_leave_out_those_that_are_not_there() -> None:
    fixture = fixture_with()
    assert fixture.broker.topics.bounds(ME, DEFAULT_SCOPE, ["u", "t"]) == {"t": [Bounds(0, 3), Bounds(0, 0)]}
