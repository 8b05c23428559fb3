"""Each request is denied to one who lacks the permission that the table of handlers names."""

from __future__ import annotations

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.kimberlite.asking import ABOUT, Target
from tests.doors.kimberlite.peer import TENANT, Peer
from tests.doors.permissions import without

from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy
from penstock.broker.security.audit_event import AuditPolicy
from penstock.broker.security.key import KeyTerms
from penstock.doors.kimberlite.handlers.table import HANDLERS
from penstock.wire.kimberlite import messages as m

CHECKED_OTHERWISE = {
    m.Handshake: "it proves who the client is",
    m.Query: "every table that a statement names is checked, by what it does to it",
    m.QueryAt: "the same",
    m.ListTables: "it lists what the client may see",
    m.DescribeTable: "as a statement",
    m.ListIndexes: "as a statement",
    m.StreamInfo: "for whoever may read, write or describe the stream",
    m.Sync: "for whoever may do anything in the tenant",
    m.GetServerInfo: "the same",
    m.SubscribeCredit: "for the connection that has subscribed",
    m.Unsubscribe: "the same",
    m.Ambiguous: "it is refused",
}
CHECKED = [kind for kind, handler in HANDLERS.items() if handler.permission is not None]


def test_every_other_request_has_a_reason() -> None:
    others = HANDLERS.keys() - set(CHECKED)
    assert {kind for kind in others if not issubclass(kind, m.Unserved)} == CHECKED_OTHERWISE.keys()


@pytest.mark.parametrize("kind", CHECKED, ids=lambda kind: kind.__name__)
def test_a_request_is_denied_without_its_permission(kind: type[m.Message]) -> None:
    fixture = BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION]), audit=AuditPolicy(enabled=True))
    new, _ = fixture.broker.keys.add(ADMINISTRATOR, KeyTerms("test", str(TENANT), (), roles=("Admin",)))
    other, _ = fixture.broker.keys.add(ADMINISTRATOR, KeyTerms("other", str(TENANT), (), roles=("Admin",)))
    fixture.commit()
    peer = Peer(fixture, token=new.secret)
    peer.ask(m.GetServerInfo())  # which shows the version of the client
    target = Target(TENANT, peer.create("secret"), key=other.secret, key_id=str(other.key.id))
    permission = HANDLERS[kind].permission
    assert permission is not None
    with without(permission):
        refused = peer.ask(ABOUT[kind](target)[0])
    assert isinstance(refused, m.ErrorResponse), refused
    assert refused.code is m.ErrorCode.AUTHENTICATION_FAILED, refused
