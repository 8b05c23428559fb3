"""Each request is denied to one who lacks the permission that the table of handlers names."""

from __future__ import annotations

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.permissions import without
from tests.doors.rustlog.peer import Peer

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy
from penstock.doors.rustlog.handlers.records import EmptyProduce
from penstock.doors.rustlog.handlers.table import HANDLERS
from penstock.wire.rustlog import messages as m

EXAMPLES: dict[type, m.Request] = {
    m.Produce: m.Produce("t", 0, [b"x"]),
    EmptyProduce: m.Produce("t", 0, []),
    m.Fetch: m.Fetch("t", 0, 0, 1000),
    m.OffsetCommit: m.OffsetCommit("g", "t", 0, 0),
    m.OffsetFetch: m.OffsetFetch("g", "t", 0),
    m.CreateTopic: m.CreateTopic("new", 1),
    m.ListTopics: m.ListTopics(),
    m.DescribeTopic: m.DescribeTopic("t"),
    m.DescribePartition: m.DescribePartition("t", 0),
    m.MetricsFetch: m.MetricsFetch(),
    m.Ping: m.Ping(),
}
DENIED = 403


@pytest.mark.parametrize("kind", HANDLERS, ids=lambda kind: kind.__name__)
def test_a_request_is_denied_without_its_permission(kind: type) -> None:
    fixture = BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION]))
    fixture.broker.topics.create(ADMINISTRATOR, DEFAULT_SCOPE, "t", 1)
    peer, request, permission = Peer(fixture, identity=ADMINISTRATOR), EXAMPLES[kind], HANDLERS[kind].permission
    if permission is not None:
        with without(permission):
            refused = peer.ask(request)
        assert isinstance(refused, m.Error) and refused.code == DENIED
    else:
        assert kind is m.Ping
    assert not isinstance(peer.ask(request), m.Error)
