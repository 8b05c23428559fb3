"""USE_SCOPE, our extension: a connection in another tenant and namespace, with the same access checks as everywhere."""

from __future__ import annotations

from tests.broker.broker_fixture import BrokerFixture
from tests.doors.flymq.peer import Peer

from penstock.broker.names import Scope
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy, Permission
from penstock.broker.security.key import KeyTerms
from penstock.wire.flymq import messages as m

ACME = Scope("acme", "sales")


def test_what_follows_is_in_that_tenant_and_namespace() -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    peer.ask(m.UseScope(*ACME))
    peer.ask(m.Produce("orders", None, b"ours"))
    peer.ask(m.ProduceWithTtl("orders", b"short", 60_000, None, -1, [("a", b"b")]))
    begun = peer.ask(m.BeginTransaction())
    assert isinstance(begun, m.TransactionState)
    peer.ask(m.ProduceInTransaction(begun.transaction_id, "orders", b"together", None, -1, [("c", b"d")]))
    peer.ask(m.CommitTransaction(begun.transaction_id))
    assert fixture.broker.topics.exists(ACME, "orders")
    assert Peer(fixture).ask(m.ListTopics()) == m.TopicList([])  # another connection is where it ever was
    fetched = peer.ask(m.FetchRecords("orders", 0, 0, 10, 0))
    assert isinstance(fetched, m.FetchedRecords)
    shown = [(record.value, list(record.headers)) for record in fetched.records]
    assert shown == [(b"ours", []), (b"short", [("a", b"b")]), (b"together", [("c", b"d")])]
    peer.ask(m.UseScope("default", "default"))
    assert peer.ask(m.ListTopics()) == m.TopicList([])


def test_a_delayed_record_keeps_its_headers() -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    peer.ask(m.ProduceDelayed("orders", b"later", 1000, None, -1, [("a", b"b")]))
    fixture.pass_time(2)
    fixture.broker.sweep(fixture.now)
    fixture.commit()
    fetched = peer.ask(m.FetchRecords("orders", 0, 0, 10, 0))
    assert isinstance(fetched, m.FetchedRecords)
    assert [(record.value, list(record.headers)) for record in fetched.records] == [(b"later", [("a", b"b")])]


def test_a_name_that_can_be_none_is_refused_and_changes_nothing() -> None:
    peer = Peer(BrokerFixture())
    for names in (("", "default"), ("a", ""), ("a/b", "x"), ("x" * 300, "x")):
        assert peer.refused(m.UseScope(*names))
    peer.ask(m.Produce("t", None, b"v"))
    assert peer.ask(m.ListTopics()) == m.TopicList(["t"])


def test_who_logs_in_is_of_the_tenant_and_nobody_gets_into_another() -> None:
    fixture = BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION]))
    broker = fixture.broker
    broker.tenants.create(ADMINISTRATOR, "acme")
    for tenant in ("acme", "default"):
        work = broker.users.create(ADMINISTRATOR, tenant, "ann", f"of {tenant}", ["admin"])
        work.run()
        work.finish()
    made, _ = broker.keys.add(ADMINISTRATOR, KeyTerms("k", "acme", [Permission.ADMIN]))
    fixture.commit()
    peer = Peer(fixture)
    peer.ask(m.UseScope(*ACME))
    assert peer.ask(m.Authenticate("ann", "of default")).success is False  # type: ignore[union-attr]
    assert peer.ask(m.Authenticate("ann", "of acme")).success is True  # type: ignore[union-attr]
    peer.ask(m.Produce("orders", None, b"v"))
    peer.ask(m.UseScope("default", "default"))
    assert peer.refused(m.Produce("orders", None, b"v"))
    assert not broker.topics.exists(Scope("default", "default"), "orders")
    by_key = Peer(fixture)
    by_key.ask(m.UseScope(*ACME))
    assert by_key.ask(m.Authenticate("", str(made.secret))).success is True  # type: ignore[union-attr]
    assert by_key.ask(m.ListTopics()) == m.TopicList(["orders"])
    stranger = Peer(fixture)
    stranger.ask(m.UseScope(*ACME))
    assert stranger.refused(m.Produce("orders", None, b"v"))
    assert broker.topics.end_offset(ADMINISTRATOR, ACME, "orders", 0) == 1
