"""The quota of a tenant, at every way into the log; for publications see `test_publications`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.broker import Broker
from penstock.broker.errors import LimitReached, QuotaReached
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.access import Identity
from penstock.broker.tables.table import BuildJob, JobDone, MaintenanceJob, TableOutcome, TablePolicy
from penstock.log.engine import Bounds, Engine, Records, partition_id
from penstock.log.file_engine import LogSettings

ALICE = Identity("alice")
ACME = Scope("acme", "default")
KIB = 1 << 10


def full(limit: int = 10 * KIB, **options: Any) -> BrokerFixture:
    """A broker in which tenant acme has stored as much as it may."""
    fixture = BrokerFixture(limits=Limits(tenant_bytes=limit), **options)
    for scope in (ACME, DEFAULT_SCOPE):
        fixture.broker.topics.create(ALICE, scope, "t", 2)
    fixture.broker.produce.append(ALICE, ACME, "t", 0, [bytes(limit)])
    fixture.commit()
    look(fixture)
    return fixture


def look(fixture: BrokerFixture) -> None:
    fixture.pass_time(1)
    fixture.broker.maintain(fixture.now)


def schedule(broker: Broker, scope: Scope) -> None:
    broker.delays.schedule(ALICE, scope, "t", b"v", None, 0, 1000)


def transaction(broker: Broker, scope: Scope) -> None:
    id = broker.transactions.begin(ALICE, "owner", scope)  # noqa: A001 - it is the transaction's id
    broker.transactions.add(ALICE, id, scope, "t", b"v")


WAYS: dict[str, Callable[[Broker, Scope], object]] = {
    "produce": lambda broker, scope: broker.produce.append(ALICE, scope, "t", 0, [b"v"]),
    "scatter": lambda broker, scope: broker.produce.append_partitioned(ALICE, scope, "t", [b"v"], None, [0]),
    "scatter of many": lambda broker, scope: broker.produce.append_partitioned(
        ALICE, scope, "t", [b"v"] * 3, None, [0, 1, 0]
    ),
    "delay": schedule,
    "transaction": transaction,
}


@pytest.mark.parametrize("way", WAYS)
def test_who_stores_as_much_as_he_may_can_append_nothing(way: str) -> None:
    fixture = full()
    fixture.commit()
    position = fixture.broker.position
    with pytest.raises(QuotaReached, match="Tenant 'acme' stores 10240 bytes"):
        WAYS[way](fixture.broker, ACME)
    fixture.commit()
    assert fixture.broker.position == position
    assert fixture.broker.metrics.tenant_writes_refused == 1
    WAYS[way](fixture.broker, DEFAULT_SCOPE)


def test_room_is_made_by_retention_or_by_deleting() -> None:
    fixture = full()
    fixture.broker.topics.delete(ALICE, ACME, "t")
    fixture.commit()
    look(fixture)
    fixture.broker.topics.create(ALICE, ACME, "t", 1)
    fixture.broker.produce.append(ALICE, ACME, "t", 0, [b"v"])
    assert fixture.broker.metrics.tenant_writes_refused == 0


def test_what_is_below_the_log_start_does_not_count() -> None:
    fixture = full()
    topic = fixture.broker.topics.describe(ALICE, ACME, "t").topic
    partition = partition_id(topic.id, 0)
    fixture.engine.trim({partition: 1})
    fixture.commit()
    look(fixture)
    fixture.broker.produce.append(ALICE, ACME, "t", 0, [b"v"])
    fixture.commit()
    assert fixture.engine.bounds(partition) == Bounds(1, 2)
    assert fixture.broker.metrics.tenant_writes_refused == 0


def test_it_is_known_again_after_a_restart() -> None:
    fixture = full()
    fixture.restart()
    look(fixture)
    with pytest.raises(QuotaReached):
        fixture.broker.produce.append(ALICE, ACME, "t", 0, [b"v"])


def test_all_topics_and_namespaces_of_a_tenant_count_together() -> None:
    fixture = BrokerFixture(limits=Limits(tenant_bytes=10 * KIB))
    for namespace in ("one", "two"):
        scope = Scope("acme", namespace)
        fixture.broker.topics.create(ALICE, scope, "t", 1)
        fixture.broker.produce.append(ALICE, scope, "t", 0, [bytes(6 * KIB)])
        fixture.commit()
        look(fixture)
    with pytest.raises(QuotaReached):
        fixture.broker.produce.append(ALICE, Scope("acme", "one"), "t", 0, [b"v"])


def test_without_a_limit_nobody_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = BrokerFixture()
    monkeypatch.setattr(type(fixture.engine), "usage", None)
    look(fixture)
    assert not fixture.broker.quotas.over


def test_adding_up_takes_a_fiftieth_of_the_time_at_most() -> None:
    fixture = full()
    looks: list[int] = []
    usage = fixture.engine.usage

    def slow() -> dict[int, int]:
        looks.append(fixture.now)
        fixture.elapsed += 100_000  # it takes a tenth of a second
        return usage()

    fixture.engine.usage = slow  # type: ignore[method-assign]
    for _ in range(60):
        look(fixture)
    assert [after - before for before, after in pairwise(looks)] == [5_000_000] * (len(looks) - 1)


def test_a_clock_that_is_set_back_does_not_stop_it() -> None:
    fixture = full()
    fixture.broker.topics.delete(ALICE, ACME, "t")
    fixture.commit()
    fixture.now -= 3_600_000_000
    look(fixture)
    assert not fixture.broker.quotas.over


# -- tables


def moved(fixture: BrokerFixture) -> tuple[int, int]:
    """Let a table take over what the closed journal file has: the topic's id, and how much that was."""
    topic = fixture.broker.topics.describe(ALICE, ACME, "t").topic.id
    before = fixture.engine.usage()[topic]
    while not fixture.engine.closed_files():
        fixture.broker.produce.append(ALICE, DEFAULT_SCOPE, "t", 0, [bytes(16 * KIB)])
        fixture.commit()
    job = fixture.broker.tables.jobs.next_job(fixture.now)
    assert isinstance(job, BuildJob)
    outcomes = [
        TableOutcome(share.ref.topic, offsets={number: span.end for number, span in share.spans.items()})
        for share in job.shares
    ]
    fixture.broker.tables.jobs.done(JobDone(job.id, outcomes))
    fixture.commit()
    return topic, before


def test_what_moves_to_a_table_counts_on_and_then_as_it_is_there() -> None:
    settings = LogSettings(file_bytes=64 * KIB, entry_bytes=32 * KIB)
    fixture = full(settings=settings, tables=TablePolicy(enabled=True, maintenance_us=0))
    topic, before = moved(fixture)
    assert fixture.engine.usage().get(topic, 0) == 0
    assert fixture.broker.tables.jobs.sizes()[topic] == before
    look(fixture)
    assert "acme" in fixture.broker.quotas.over

    for _ in range(10):
        job = fixture.broker.tables.jobs.next_job(fixture.now)
        if isinstance(job, MaintenanceJob):
            small = 100 if job.ref.topic == topic else 1
            fixture.broker.tables.jobs.done(JobDone(job.id, [TableOutcome(job.ref.topic, bytes=small)]))
    assert fixture.broker.tables.jobs.sizes()[topic] == 100
    look(fixture)
    assert "acme" not in fixture.broker.quotas.over


# -- the number of topics


def test_a_tenant_has_only_so_many_topics() -> None:
    fixture = BrokerFixture(limits=Limits(tenant_topics=2))
    broker = fixture.broker
    broker.topics.create(ALICE, ACME, "a", 1)
    broker.topics.ensure(ALICE, Scope("acme", "other"), "b")
    for attempt in (
        lambda: broker.topics.create(ALICE, ACME, "c", 1),
        lambda: broker.topics.ensure(ALICE, ACME, "c"),
        lambda: broker.queues.create(ALICE, ACME, "c", at_least_once=True),
    ):
        with pytest.raises(QuotaReached, match="2 topics"):
            attempt()
    assert broker.metrics.tenant_topics_refused == 3
    broker.topics.create(ALICE, DEFAULT_SCOPE, "c", 1)
    broker.topics.delete(ALICE, ACME, "a")
    broker.topics.create(ALICE, ACME, "c", 1)


def test_topics_that_come_with_a_transaction_count_too() -> None:
    fixture = BrokerFixture(limits=Limits(tenant_topics=2))
    id = fixture.broker.transactions.begin(ALICE, "owner", ACME)  # noqa: A001 - it is the transaction's id
    for name in ("a", "b", "c"):
        fixture.broker.transactions.add(ALICE, id, ACME, name, b"v")
    with pytest.raises(LimitReached):
        fixture.broker.transactions.commit(ALICE, id)
    assert not fixture.committer.run()


def test_an_engine_tells_what_each_topic_takes() -> None:
    fixture = BrokerFixture()
    engine: Engine = fixture.engine
    for topic, size in ((5, 1000), (5, 3000), (6, 2000)):
        engine.append([Records(partition_id(topic, size % 7), [bytes(size)])])
        fixture.commit()
    sizes = engine.usage()
    assert sizes.keys() == {5, 6}
    assert 4000 < sizes[5] < 4500
    assert 2000 < sizes[6] < 2300
