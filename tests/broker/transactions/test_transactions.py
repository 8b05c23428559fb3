from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.broker_fixture import START, BrokerFixture, committed

from penstock.broker.errors import (
    AccessDenied,
    InvalidName,
    LimitReached,
    PartitionNotFound,
    RecordRejected,
    RecordTooLarge,
    ShuttingDown,
    TopicNotFound,
    TransactionNotActive,
    TransactionNotFound,
    TransactionTooLarge,
)
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.access import ANONYMOUS, AccessPolicy, Grant, Identity, Permission
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.broker.transactions.transaction import belongs, new_id
from penstock.log.errors import LogFull
from penstock.log.file_engine import LogSettings

ALICE = Identity("alice")
BOB = Identity("bob")
ACME = Scope("acme", "default")


def records(fixture: BrokerFixture, topic: str, partition: int = 0, scope: Scope = DEFAULT_SCOPE) -> list[bytes]:
    plan = fixture.broker.fetch.plan(ANONYMOUS, scope, topic, partition, 0, 1 << 20, 1000)
    return [value for part in plan.run() for value in part.values()]


def topics(fixture: BrokerFixture) -> list[str]:
    return [topic.name for topic in fixture.broker.topics.list(ANONYMOUS, DEFAULT_SCOPE)]


def a_broker(**options: Any) -> BrokerFixture:
    fixture = BrokerFixture(**options)
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "orders", 3)
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "bills", 1)
    fixture.commit()
    return fixture


def begin(fixture: BrokerFixture, identity: Identity = ALICE, owner: str = "connection") -> str:
    return fixture.broker.transactions.begin(identity, owner, DEFAULT_SCOPE)


def add(
    fixture: BrokerFixture, txn: str, topic: str, value: bytes, key: bytes | None = None, partition: int = -1
) -> None:
    fixture.broker.transactions.add(ALICE, txn, DEFAULT_SCOPE, topic, value, key, partition)


def filled(fixture: BrokerFixture) -> str:
    """Records in four partitions of three topics, one of which is still to come."""
    txn = begin(fixture)
    add(fixture, txn, "orders", b"1")
    add(fixture, txn, "orders", b"2")
    add(fixture, txn, "bills", b"3", b"key")
    add(fixture, txn, "orders", b"4", partition=1)
    add(fixture, txn, "new", b"5")
    return txn


def everything(fixture: BrokerFixture) -> list[list[bytes]]:
    """The records that `filled` writes, by partition. A missing topic has none."""
    found = [records(fixture, "orders", number) for number in range(3)] + [records(fixture, "bills")]
    return [*found, records(fixture, "new") if "new" in topics(fixture) else []]


ALL = [[b"1"], [b"2", b"4"], [], [b"3"], [b"5"]]
NOTHING_REMOVED: list[list[bytes]] = [[], [], [], [], []]


# -- all or nothing


def test_records_appear_together_when_the_commit_is_committed() -> None:
    fixture = a_broker()
    txn = filled(fixture)
    fixture.commit()
    assert everything(fixture) == NOTHING_REMOVED
    assert topics(fixture) == ["bills", "orders"]
    done, group = fixture.broker.transactions.commit(ALICE, txn)
    assert (done.records, done.dead_lettered, done.timestamp, done.repeated) == (5, 0, START, False)
    assert group is not None and not committed(group)
    assert records(fixture, "orders") == []
    fixture.commit()
    assert committed(group)
    assert everything(fixture) == ALL
    assert len(fixture.broker.transactions) == 0
    fixture.restart()
    assert everything(fixture) == ALL


def test_a_crash_before_the_commit_leaves_nothing() -> None:
    fixture = a_broker()
    txn = filled(fixture)
    fixture.commit()
    fixture.restart()
    assert everything(fixture) == NOTHING_REMOVED
    assert topics(fixture) == ["bills", "orders"]
    with pytest.raises(TransactionNotFound, match=f"^transaction not found: {txn}$"):
        fixture.broker.transactions.commit(ALICE, txn)


def test_a_crash_during_the_commit_leaves_nothing() -> None:
    fixture = a_broker()
    txn = filled(fixture)
    fixture.broker.transactions.commit(ALICE, txn)
    fixture.restart()
    assert everything(fixture) == NOTHING_REMOVED
    with pytest.raises(TransactionNotFound):
        fixture.broker.transactions.commit(ALICE, txn)


def test_a_crash_between_two_commit_groups_does_not_split_a_transaction() -> None:
    """Whatever is appended by itself is a group of its own here, and the process ends behind the first one."""
    fixture = a_broker(settings=LogSettings(file_bytes=256 << 10, group_bytes=1))
    _, group = fixture.broker.transactions.commit(ALICE, filled(fixture))
    assert fixture.committer.run()
    assert group is not None and committed(group)
    fixture.restart()
    assert everything(fixture) == ALL


def test_a_commit_that_is_asked_for_again_counts_once_also_after_a_restart_and_elsewhere() -> None:
    fixture = a_broker()
    txn = filled(fixture)
    fixture.broker.transactions.commit(ALICE, txn)
    done, group = fixture.broker.transactions.commit(ALICE, txn)  # on its way
    assert done.repeated and group is not None and not committed(group)
    fixture.commit()
    assert committed(group)
    fixture.pass_time(5)
    elsewhere = ALICE._replace(peer="192.0.2.7:1234")
    assert fixture.broker.transactions.commit(elsewhere, txn) == ((0, 0, START, True), None)
    fixture.restart()
    assert fixture.broker.transactions.commit(ALICE, txn) == ((0, 0, START, True), None)
    fixture.commit()
    assert everything(fixture) == ALL


def test_another_connection_of_the_same_identity_may_go_on() -> None:
    fixture = a_broker()
    txn = begin(fixture)
    elsewhere = ALICE._replace(peer="192.0.2.7:1234")
    fixture.broker.transactions.add(elsewhere, txn, DEFAULT_SCOPE, "bills", b"v")
    fixture.broker.transactions.commit(elsewhere, txn)
    fixture.commit()
    assert records(fixture, "bills") == [b"v"]


def test_nothing_of_a_rolled_back_transaction_is_stored() -> None:
    fixture = a_broker()
    txn = filled(fixture)
    fixture.broker.transactions.rollback(ALICE, txn)
    for again in (fixture.broker.transactions.commit, fixture.broker.transactions.rollback):
        with pytest.raises(TransactionNotActive, match=r"^transaction is not active: rolled back$"):
            again(ALICE, txn)
    with pytest.raises(TransactionNotActive):
        add(fixture, txn, "bills", b"v")
    fixture.commit()
    assert everything(fixture) == NOTHING_REMOVED
    assert len(fixture.broker.transactions) == 0


def test_a_commit_of_nothing_is_a_commit() -> None:
    fixture = a_broker()
    txn = begin(fixture)
    done, group = fixture.broker.transactions.commit(ALICE, txn)
    fixture.commit()
    assert done.records == 0 and group is not None and committed(group)
    fixture.restart()
    assert fixture.broker.transactions.commit(ALICE, txn)[0].repeated


def test_a_full_disk_leaves_the_transaction_as_it_was() -> None:
    fixture = a_broker()
    txn = filled(fixture)
    fault = fixture.fill_disk()
    _, group = fixture.broker.transactions.commit(ALICE, txn)
    with pytest.raises(TransactionNotActive, match="committing"):
        add(fixture, txn, "bills", b"late")
    with pytest.raises(TransactionNotActive, match="committing"):
        fixture.broker.transactions.rollback(ALICE, txn)
    fixture.commit()  # fails
    assert group is not None and not committed(group)
    assert everything(fixture) == NOTHING_REMOVED
    with pytest.raises(LogFull):
        fixture.broker.transactions.commit(ALICE, txn)
    assert everything(fixture) == NOTHING_REMOVED
    fixture.free_disk(fault)
    add(fixture, txn, "bills", b"more")
    done, group = fixture.broker.transactions.commit(ALICE, txn)
    assert done == (6, 0, START, False)
    fixture.commit()
    assert sum(map(len, everything(fixture))) == 6
    assert records(fixture, "bills") == [b"3", b"more"]
    fixture.restart()
    assert sum(map(len, everything(fixture))) == 6


def test_what_was_added_keeps_its_order_within_a_partition() -> None:
    fixture = a_broker()
    txn = begin(fixture)
    for number in range(50):
        add(fixture, txn, "bills" if number % 2 else "orders", b"%d" % number, partition=0)
    fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "bills", 0, [b"before"])
    fixture.broker.transactions.commit(ALICE, txn)
    fixture.commit()
    assert records(fixture, "orders") == [b"%d" % number for number in range(0, 50, 2)]
    assert records(fixture, "bills") == [b"before", *[b"%d" % number for number in range(1, 50, 2)]]


def test_keys_and_expiry_are_kept() -> None:
    fixture = a_broker()
    txn = begin(fixture)
    fixture.broker.transactions.add(ALICE, txn, DEFAULT_SCOPE, "bills", b"1", b"k", 0, fixture.now + 1_000_000)
    fixture.broker.transactions.add(ALICE, txn, DEFAULT_SCOPE, "bills", b"2")
    fixture.broker.transactions.commit(ALICE, txn)
    fixture.commit()
    (part,) = fixture.broker.fetch.plan(ANONYMOUS, DEFAULT_SCOPE, "bills", 0, 0, 1000, 10).run()
    assert list(part.keys()) == [b"k", None]
    assert list(part.expires()) == [fixture.now + 1_000_000, 0]


def test_one_transaction_may_write_in_several_scopes() -> None:
    fixture = a_broker()
    txn = begin(fixture)
    fixture.broker.transactions.add(ALICE, txn, ACME, "orders", b"there")
    fixture.broker.transactions.add(ALICE, txn, DEFAULT_SCOPE, "orders", b"here")
    fixture.broker.transactions.commit(ALICE, txn)
    fixture.commit()
    assert records(fixture, "orders", scope=ACME) == [b"there"]
    assert records(fixture, "orders") == [b"here"]


# -- topics that come and go meanwhile


def test_several_new_topics_come_into_being_with_the_records() -> None:
    fixture = a_broker()
    txn = begin(fixture)
    for name in ("x", "y", "z", "x"):
        add(fixture, txn, name, name.encode())
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "y", 2)  # somebody was quicker
    fixture.broker.transactions.commit(ALICE, txn)
    fixture.commit()
    fixture.restart()
    assert topics(fixture) == ["bills", "orders", "x", "y", "z"]
    assert [records(fixture, name) for name in "xyz"] == [[b"x", b"x"], [b"y"], [b"z"]]
    assert fixture.broker.topics.describe(ANONYMOUS, DEFAULT_SCOPE, "y").topic.partitions == 2
    ids = [topic.id for topic in fixture.broker.topics.list(ANONYMOUS, DEFAULT_SCOPE)]
    assert len(set(ids)) == 5


def test_a_topic_that_was_deleted_meanwhile_comes_back_or_the_commit_fails_as_a_whole() -> None:
    fixture = a_broker()
    txn = begin(fixture)
    add(fixture, txn, "bills", b"1")
    add(fixture, txn, "orders", b"2", partition=2)
    fixture.broker.topics.delete(ANONYMOUS, DEFAULT_SCOPE, "orders")
    fixture.commit()
    with pytest.raises(PartitionNotFound):  # a new one has one partition
        fixture.broker.transactions.commit(ALICE, txn)
    fixture.commit()
    assert topics(fixture) == ["bills"] and records(fixture, "bills") == []
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "orders", 3)
    fixture.broker.transactions.commit(ALICE, txn)
    fixture.commit()
    assert records(fixture, "bills") == [b"1"] and records(fixture, "orders", 2) == [b"2"]


def test_without_creation_on_first_use_a_topic_must_be_there() -> None:
    fixture = a_broker(auto_create_topics=False)
    txn = begin(fixture)
    with pytest.raises(TopicNotFound):
        add(fixture, txn, "new", b"v")
    add(fixture, txn, "bills", b"v")
    fixture.broker.topics.delete(ANONYMOUS, DEFAULT_SCOPE, "bills")
    with pytest.raises(TopicNotFound):
        fixture.broker.transactions.commit(ALICE, txn)


def test_dead_letters_of_several_topics_and_new_topics_come_together() -> None:
    fixture = a_broker()
    picky = TopicSettings(schema="no such schema", rejected="dead-letter")
    for name in ("one", "two"):
        fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, name, 2, picky)
    txn = begin(fixture)
    for name in ("x", "one", "two", "y", "two.dlq", "one"):
        add(fixture, txn, name, name.encode())
    assert fixture.broker.transactions.commit(ALICE, txn)[0][:2] == (6, 3)
    fixture.commit()
    fixture.restart()
    names = ["x", "y", "one", "one.dlq", "two", "two.dlq"]
    assert [records(fixture, name) for name in names] == [
        [b"x"], [b"y"], [], [b"one", b"one"], [], [b"two", b"two.dlq"]
    ]  # fmt: skip
    assert [fixture.broker.topics.describe(ANONYMOUS, DEFAULT_SCOPE, name).topic.name for name in names] == names


def test_a_record_that_is_refused_for_its_schema_is_refused_when_it_is_added_or_else_with_all_others() -> None:
    fixture = a_broker()
    txn = begin(fixture)
    add(fixture, txn, "orders", b"1", partition=0)
    add(fixture, txn, "bills", b"2")
    fixture.broker.topics.change(ANONYMOUS, DEFAULT_SCOPE, "bills", TopicSettings(schema="no such schema"))
    with pytest.raises(RecordRejected):
        add(fixture, txn, "bills", b"3")
    with pytest.raises(RecordRejected):
        fixture.broker.transactions.commit(ALICE, txn)
    fixture.commit()
    assert records(fixture, "orders") == []
    fixture.broker.topics.change(ANONYMOUS, DEFAULT_SCOPE, "bills", TopicSettings())
    fixture.broker.transactions.commit(ALICE, txn)
    fixture.commit()
    assert records(fixture, "orders") == [b"1"] and records(fixture, "bills") == [b"2"]


# -- what is refused


def test_what_cannot_be_added_leaves_the_transaction_as_it_was() -> None:
    fixture = a_broker(limits=Limits(record_bytes=100, topics=2, tenant_share=1))
    txn = begin(fixture)
    add(fixture, txn, "bills", b"v")
    for topic, value, partition, error in (
        ("bills", b"x" * 101, -1, RecordTooLarge),
        ("orders", b"v", 3, PartitionNotFound),
        ("new", b"v", 1, LimitReached),
        ("a\\b", b"v", -1, InvalidName),
    ):
        with pytest.raises(error):
            add(fixture, txn, topic, value, partition=partition)
    with pytest.raises(RecordTooLarge):
        add(fixture, txn, "bills", b"x" * 60, b"k" * 41)
    assert fixture.broker.transactions.commit(ALICE, txn)[0].records == 1


def test_a_transaction_belongs_to_the_identity_that_began_it() -> None:
    fixture = a_broker()
    txn = begin(fixture)
    others = (BOB, Identity("alice", tenant="default"), Identity("alic"))
    for other in others:
        with pytest.raises(TransactionNotFound):
            fixture.broker.transactions.add(other, txn, DEFAULT_SCOPE, "bills", b"v")
        with pytest.raises(TransactionNotFound):
            fixture.broker.transactions.commit(other, txn)
        with pytest.raises(TransactionNotFound):
            fixture.broker.transactions.rollback(other, txn)
    fixture.broker.transactions.commit(ALICE, txn)
    fixture.commit()
    for other in others:
        with pytest.raises(TransactionNotFound):
            fixture.broker.transactions.commit(other, txn)


@pytest.mark.parametrize("txn", ["", "txn-", "txn-zz", "txn-" + "0" * 40, "é", "\0", "x" * 10_000, " txn-00"])
def test_an_id_that_was_never_given_is_not_found(txn: str) -> None:
    fixture = a_broker()
    begin(fixture)
    for operation in (fixture.broker.transactions.commit, fixture.broker.transactions.rollback):
        with pytest.raises(TransactionNotFound) as refused:
            operation(ALICE, txn)
        assert len(str(refused.value)) < 200


def test_ids_are_unlike_each_other_and_tell_whose_they_are() -> None:
    fixture = a_broker()
    ids = {begin(fixture) for _ in range(50)}
    assert len(ids) == 50
    assert all(txn.startswith("txn-") and len(txn) == 44 for txn in ids)
    assert belongs(new_id(ALICE, bytes(16)), ALICE)
    assert not belongs(new_id(ALICE, bytes(16)).upper(), ALICE)
    assert not belongs(new_id(Identity("a", "b"), bytes(16)), Identity("a@b"))


def test_bounds() -> None:
    limits = Limits(
        transactions=3,
        transactions_per_owner=2,
        transaction_records=4,
        transaction_bytes=10_000,
        transactions_bytes=15_000,
        tenant_share=1,
    )
    fixture = a_broker(limits=limits)
    first, second = begin(fixture), begin(fixture)
    with pytest.raises(LimitReached, match="2 transactions of one client"):
        begin(fixture)
    third = begin(fixture, owner="another")
    with pytest.raises(LimitReached, match="3 open transactions"):
        begin(fixture, owner="yet another")
    for _ in range(4):
        add(fixture, first, "bills", b"v")
    with pytest.raises(TransactionTooLarge, match="4 records"):
        add(fixture, first, "bills", b"v")
    add(fixture, second, "bills", b"x" * 4000)
    with pytest.raises(TransactionTooLarge, match="10000 bytes"):
        add(fixture, second, "bills", b"x" * 4000)
    add(fixture, third, "bills", b"x" * 4000)
    with pytest.raises(LimitReached, match="15000 bytes"):
        add(fixture, third, "bills", b"x" * 1000)
    fixture.broker.transactions.rollback(ALICE, second)  # what it held is free again
    add(fixture, third, "bills", b"x" * 1000)
    fixture.broker.transactions.commit(ALICE, first)
    fixture.commit()
    fourth = begin(fixture)
    assert fixture.broker.transactions.commit(ALICE, third)[0].records == 2
    assert fixture.broker.transactions.commit(ALICE, fourth)[0].records == 0
    fixture.commit()
    assert len(records(fixture, "bills")) == 6


def test_as_many_bytes_as_a_transaction_may_hold_are_one_entry_of_the_log() -> None:
    """A commit must not be refused for its size after every record of it was accepted."""
    settings = LogSettings(file_bytes=256 << 10, entry_bytes=64 << 10)
    fixture = a_broker(settings=settings, limits=Limits(transaction_bytes=64 << 10))
    txn = begin(fixture)
    with pytest.raises(TransactionTooLarge):
        for number in range(100_000):
            add(fixture, txn, f"topic-{number % 10}", b"%d" % number, partition=0)
    assert fixture.broker.transactions.commit(ALICE, txn)[0].records > 100
    fixture.commit()


# -- time and connections


def test_a_transaction_that_is_open_for_too_long_is_dropped() -> None:
    fixture = a_broker(limits=Limits(transaction_us=60_000_000))
    early = filled(fixture)
    fixture.pass_time(30)
    late = begin(fixture)
    fixture.pass_time(29.9)
    fixture.broker.sweep(fixture.now)
    add(fixture, early, "bills", b"v")
    fixture.pass_time(0.1)
    fixture.broker.sweep(fixture.now)
    with pytest.raises(TransactionNotActive, match="timed out"):
        fixture.broker.transactions.commit(ALICE, early)
    fixture.broker.transactions.commit(ALICE, late)
    fixture.commit()
    assert everything(fixture) == NOTHING_REMOVED
    assert fixture.broker.metrics.transactions_timed_out == 1


def test_time_does_not_take_back_a_commit_that_is_on_its_way() -> None:
    fixture = a_broker()
    txn = filled(fixture)
    fixture.broker.transactions.commit(ALICE, txn)
    fixture.pass_time(100)
    fixture.broker.sweep(fixture.now)
    assert fixture.broker.transactions.commit(ALICE, txn)[0].repeated
    fixture.commit()
    assert everything(fixture) == ALL
    assert len(fixture.broker.transactions) == 0
    assert fixture.broker.metrics.transactions_timed_out == 0


def test_what_a_connection_began_ends_with_it() -> None:
    fixture = a_broker()
    gone, other = filled(fixture), begin(fixture, owner="another")
    fixture.broker.transactions.abandon("connection")
    fixture.broker.transactions.abandon("connection")
    with pytest.raises(TransactionNotActive, match="rolled back"):
        fixture.broker.transactions.commit(ALICE, gone)
    add(fixture, other, "bills", b"v")
    fixture.broker.transactions.commit(ALICE, other)
    fixture.commit()
    assert everything(fixture) == [[], [], [], [b"v"], []]


@pytest.mark.parametrize("fails", [False, True])
def test_a_connection_that_ends_during_the_commit(fails: bool) -> None:
    fixture = a_broker()
    txn = filled(fixture)
    fault = fixture.fill_disk() if fails else None
    fixture.broker.transactions.commit(ALICE, txn)
    fixture.broker.transactions.abandon("connection")
    fixture.commit()
    assert everything(fixture) == (NOTHING_REMOVED if fails else ALL)
    assert len(fixture.broker.transactions) == 0
    if fault is not None:
        fixture.free_disk(fault)
        with pytest.raises(TransactionNotActive):
            fixture.broker.transactions.commit(ALICE, txn)


def test_a_broker_that_shuts_down_takes_no_more_and_forgets_its_connections() -> None:
    fixture = a_broker()
    txn = begin(fixture)
    fixture.broker.close()
    for operation in (fixture.broker.transactions.commit, fixture.broker.transactions.rollback):
        with pytest.raises(ShuttingDown):
            operation(ALICE, txn)
    with pytest.raises(ShuttingDown):
        begin(fixture)
    fixture.broker.transactions.abandon("connection")


# -- access and figures


def test_rights_are_looked_at_for_each_record_and_again_at_the_commit() -> None:
    grants = [Grant("alice", frozenset({Permission.WRITE}), topic="bills")]
    fixture = a_broker()
    fixture.options["access"] = policy = AccessPolicy(True, grants)
    fixture.restart()
    txn = begin(fixture)
    add(fixture, txn, "bills", b"v")
    for topic in ("orders", "missing"):
        with pytest.raises(AccessDenied):
            add(fixture, txn, topic, b"v")
    with pytest.raises(AccessDenied):
        begin(fixture, BOB)
    fixture.broker.access.apply(AccessPolicy(True))
    with pytest.raises(AccessDenied):
        fixture.broker.transactions.commit(ALICE, txn)
    fixture.broker.access.apply(policy)
    assert fixture.broker.transactions.commit(ALICE, txn)[0].records == 1


def test_a_topic_is_created_only_for_those_who_may() -> None:
    grants = [
        Grant("alice", frozenset({Permission.WRITE})),
        Grant("bob", frozenset({Permission.WRITE, Permission.CREATE})),
    ]
    fixture = BrokerFixture(access=AccessPolicy(True, grants))
    txn = begin(fixture)
    with pytest.raises(AccessDenied):
        add(fixture, txn, "new", b"v")
    txn = begin(fixture, BOB)
    fixture.broker.transactions.add(BOB, txn, DEFAULT_SCOPE, "new", b"v")
    assert fixture.broker.transactions.commit(BOB, txn)[0].records == 1


def test_figures_count_what_is_committed() -> None:
    fixture = a_broker()
    txn = filled(fixture)
    assert "transactions_open 1.0" in fixture.broker.exposition.text()
    fixture.broker.transactions.rollback(ALICE, begin(fixture))
    fixture.broker.transactions.commit(ALICE, txn)
    assert fixture.broker.metrics.messages_produced == 0
    fixture.commit()
    text = fixture.broker.exposition.text()
    assert fixture.broker.metrics.messages_produced == 5
    assert fixture.broker.metrics.bytes_in == 8
    assert "transactions_open 0.0" in text
    assert "transactions_committed_total 1.0" in text
    assert "transactions_dropped_total 1.0" in text


# -- whatever happens


@given(st.data())
def test_of_each_transaction_all_records_are_there_once_or_none(data: st.DataObject) -> None:
    """A client that commits again what it does not know the outcome of, over disks that fill up and crashes."""
    fixture = a_broker()
    held: dict[str, list[bytes]] = {}
    promised: set[str] = set()  # their commits were acknowledged
    fault = None
    for step in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["begin", "add", "commit", "rollback", "write", "crash", "fill", "free"]))
        txn = data.draw(st.sampled_from(sorted(held))) if held else None
        try:
            if action == "begin":
                held[begin(fixture)] = []
            elif action == "add" and txn is not None:
                value = b"%s %d" % (txn.encode(), step)
                add(fixture, txn, data.draw(st.sampled_from(["orders", "bills", "x", "y"])), value)
                held[txn].append(value)
            elif action == "commit" and txn is not None:
                _, group = fixture.broker.transactions.commit(ALICE, txn)
                if group is not None:
                    group.on_done(lambda group, txn=txn: promised.add(txn) if committed(group) else None)  # type: ignore[misc]
            elif action == "rollback" and txn is not None:
                fixture.broker.transactions.rollback(ALICE, txn)
            elif action == "write":
                fixture.commit()
            elif action == "crash" and fault is None:
                fixture.restart()
            elif action == "fill" and fault is None:
                fault = fixture.fill_disk()
            elif action == "free" and fault is not None:
                fixture.free_disk(fault)
                fault = None
        except (TransactionNotActive, TransactionNotFound, LogFull):
            pass
    if fault is not None:
        fixture.commit()
        fixture.free_disk(fault)
    fixture.commit()
    fixture.restart()
    stored = [
        value
        for name in topics(fixture)
        for number in range(fixture.broker.topics.describe(ANONYMOUS, DEFAULT_SCOPE, name).topic.partitions)
        for value in records(fixture, name, number)
    ]
    assert len(stored) == len(set(stored))
    for txn, values in held.items():
        there = [value for value in values if value in stored]
        assert there == values or (not there and txn not in promised)
