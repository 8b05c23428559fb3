"""What a tenant may store, at every way into the log; that of publications is in `test_publications`."""

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
from penstock.broker.tables.table import BuildJob, CareJob, JobDone, TableOutcome, TablePolicy
from penstock.log.engine import Engine, Records, partition_id
from penstock.log.file_engine import LogSettings

ALICE = Identity("alice")
ACME = Scope("acme", "default")
KIB = 1 << 10


def full(limit: int = 10 * KIB, **options: Any) -> BrokerFixture:
    """A world in which tenant acme has stored as much as it may."""
    world = BrokerFixture(limits=Limits(tenant_bytes=limit), **options)
    for scope in (ACME, DEFAULT_SCOPE):
        world.broker.topics.create(ALICE, scope, "t", 2)
    world.broker.produce.append(ALICE, ACME, "t", 0, [bytes(limit)])
    world.commit()
    look(world)
    return world


def look(world: BrokerFixture) -> None:
    world.pass_time(1)
    world.broker.maintain(world.now)


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
    world = full()
    world.commit()
    position = world.broker.position
    with pytest.raises(QuotaReached, match="Tenant 'acme' stores 10240 bytes"):
        WAYS[way](world.broker, ACME)
    world.commit()
    assert world.broker.position == position
    assert world.broker.metrics.tenant_writes_refused == 1
    WAYS[way](world.broker, DEFAULT_SCOPE)


def test_room_is_made_by_retention_or_by_deleting() -> None:
    world = full()
    world.broker.topics.delete(ALICE, ACME, "t")
    world.commit()
    look(world)
    world.broker.topics.create(ALICE, ACME, "t", 1)
    world.broker.produce.append(ALICE, ACME, "t", 0, [b"v"])
    assert world.broker.metrics.tenant_writes_refused == 0


def test_what_is_below_the_log_start_does_not_count() -> None:
    world = full()
    topic = world.broker.topics.describe(ALICE, ACME, "t").topic
    world.engine.trim({partition_id(topic.id, 0): 1})
    world.commit()
    look(world)
    world.broker.produce.append(ALICE, ACME, "t", 0, [b"v"])


def test_it_is_known_again_after_a_restart() -> None:
    world = full()
    world.restart()
    look(world)
    with pytest.raises(QuotaReached):
        world.broker.produce.append(ALICE, ACME, "t", 0, [b"v"])


def test_all_topics_and_namespaces_of_a_tenant_count_together() -> None:
    world = BrokerFixture(limits=Limits(tenant_bytes=10 * KIB))
    for namespace in ("one", "two"):
        scope = Scope("acme", namespace)
        world.broker.topics.create(ALICE, scope, "t", 1)
        world.broker.produce.append(ALICE, scope, "t", 0, [bytes(6 * KIB)])
        world.commit()
        look(world)
    with pytest.raises(QuotaReached):
        world.broker.produce.append(ALICE, Scope("acme", "one"), "t", 0, [b"v"])


def test_without_a_limit_nobody_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    world = BrokerFixture()
    monkeypatch.setattr(type(world.engine), "usage", None)
    look(world)
    assert not world.broker.quotas.over


def test_adding_up_takes_a_fiftieth_of_the_time_at_most() -> None:
    world = full()
    looks: list[int] = []
    usage = world.engine.usage

    def slow() -> dict[int, int]:
        looks.append(world.now)
        world.elapsed += 100_000  # it takes a tenth of a second
        return usage()

    world.engine.usage = slow  # type: ignore[method-assign]
    for _ in range(60):
        look(world)
    assert [after - before for before, after in pairwise(looks)] == [5_000_000] * (len(looks) - 1)


def test_a_clock_that_is_set_back_does_not_stop_it() -> None:
    world = full()
    world.broker.topics.delete(ALICE, ACME, "t")
    world.commit()
    world.now -= 3_600_000_000
    look(world)
    assert not world.broker.quotas.over


# -- tables


def moved(world: BrokerFixture) -> tuple[int, int]:
    """Let a table take over what the closed journal file has: the topic's id, and how much that was."""
    topic = world.broker.topics.describe(ALICE, ACME, "t").topic.id
    before = world.engine.usage()[topic]
    while not world.engine.closed_files():
        world.broker.produce.append(ALICE, DEFAULT_SCOPE, "t", 0, [bytes(16 * KIB)])
        world.commit()
    job = world.broker.tables.next_job(world.now)
    assert isinstance(job, BuildJob)
    outcomes = [
        TableOutcome(share.ref.topic, offsets={number: span.end for number, span in share.spans.items()})
        for share in job.shares
    ]
    world.broker.tables.done(JobDone(job.id, outcomes))
    world.commit()
    return topic, before


def test_what_moves_to_a_table_counts_on_and_then_as_it_is_there() -> None:
    settings = LogSettings(file_bytes=64 * KIB, entry_bytes=32 * KIB)
    world = full(settings=settings, tables=TablePolicy(enabled=True, maintenance_us=0))
    topic, before = moved(world)
    assert world.engine.usage().get(topic, 0) == 0
    assert world.broker.tables.sizes()[topic] == before
    look(world)
    assert "acme" in world.broker.quotas.over

    for _ in range(10):
        job = world.broker.tables.next_job(world.now)
        if isinstance(job, CareJob):
            small = 100 if job.ref.topic == topic else 1
            world.broker.tables.done(JobDone(job.id, [TableOutcome(job.ref.topic, bytes=small)]))
    assert world.broker.tables.sizes()[topic] == 100
    look(world)
    assert "acme" not in world.broker.quotas.over


# -- the number of topics


def test_a_tenant_has_only_so_many_topics() -> None:
    world = BrokerFixture(limits=Limits(tenant_topics=2))
    broker = world.broker
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
    world = BrokerFixture(limits=Limits(tenant_topics=2))
    id = world.broker.transactions.begin(ALICE, "owner", ACME)  # noqa: A001 - it is the transaction's id
    for name in ("a", "b", "c"):
        world.broker.transactions.add(ALICE, id, ACME, name, b"v")
    with pytest.raises(LimitReached):
        world.broker.transactions.commit(ALICE, id)
    assert not world.committer.run()


def test_an_engine_tells_what_each_topic_takes() -> None:
    world = BrokerFixture()
    engine: Engine = world.engine
    for topic, size in ((5, 1000), (5, 3000), (6, 2000)):
        engine.append([Records(partition_id(topic, size % 7), [bytes(size)])])
        world.commit()
    sizes = engine.usage()
    assert sizes.keys() == {5, 6}
    assert 4000 < sizes[5] < 4500
    assert 2000 < sizes[6] < 2300
