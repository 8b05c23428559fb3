"""`Broker.sync`: what is committed survives a loss of power, at every level of durability."""

from __future__ import annotations

from random import Random
from threading import Event, Thread

import pytest
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.errors import AccessDenied, ShuttingDown
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.access import Access, Grant, Identity, Permission
from penstock.log.engine import Durability, GroupState
from penstock.log.errors import LogError
from penstock.log.file_engine import LogSettings

ALICE = Identity("alice")


def sync(fixture: BrokerFixture) -> None:
    work = fixture.broker.sync(ALICE, DEFAULT_SCOPE)
    work.run()
    work.finish()


@pytest.mark.parametrize("durability", Durability)
def test_what_is_committed_survives_a_loss_of_power(durability: Durability) -> None:
    fixture = BrokerFixture(LogSettings(file_bytes=256 << 10, durability=durability))
    fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, "t", 1)
    fixture.broker.produce.append(ALICE, DEFAULT_SCOPE, "t", 0, [b"v"])
    fixture.commit()
    sync(fixture)
    fixture.broker.produce.append(ALICE, DEFAULT_SCOPE, "t", 0, [b"w"])
    fixture.commit()
    ends = set()
    for seed in range(20):  # what was not synced may be lost or not
        after = BrokerFixture(fixture.settings)
        after.disk = fixture.disk.crash(Random(seed))
        after.open()
        ends.add(after.broker.topics.describe_partition(ALICE, DEFAULT_SCOPE, "t", 0).high_watermark)
    assert min(ends) == (2 if durability is Durability.SYNCED else 1)


@pytest.mark.parametrize("durability", [Durability.WRITTEN, Durability.MEMORY])
def test_a_disk_that_fails_is_told(durability: Durability) -> None:
    fixture = BrokerFixture(LogSettings(file_bytes=256 << 10, durability=durability))
    fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, "t", 1)
    fixture.commit()
    fixture.break_disk()
    with pytest.raises(LogError, match="could not be synced"):
        sync(fixture)


def test_it_is_for_anybody_who_may_do_something_in_the_tenant() -> None:
    for permission in Permission:
        access = Access(enforced=True, grants=[Grant("alice", frozenset({permission}), tenant="default")])
        fixture = BrokerFixture(access=access)
        sync(fixture)
        with pytest.raises(AccessDenied):
            fixture.broker.sync(ALICE, Scope("acme", "default"))
        with pytest.raises(AccessDenied):
            fixture.broker.sync(Identity("bob"), DEFAULT_SCOPE)


def test_a_broker_that_shuts_down_says_so() -> None:
    fixture = BrokerFixture()
    fixture.broker.close()
    with pytest.raises(ShuttingDown):
        fixture.broker.sync(ALICE, DEFAULT_SCOPE)


def test_at_level_memory_it_waits_for_what_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records count there before they are written, so a sync may come before their write."""
    fixture = BrokerFixture(LogSettings(file_bytes=256 << 10, durability=Durability.MEMORY))
    engine, tried = fixture.engine, Event()
    fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, "t", 1)
    sealed = engine.seal()
    assert sealed is not None
    assert sealed.outcome.state is GroupState.COMMITTED
    plain = engine._sync

    def noticed() -> None:
        plain()
        tried.set()

    monkeypatch.setattr(engine, "_sync", noticed)
    work = fixture.broker.sync(ALICE, DEFAULT_SCOPE)
    thread = Thread(target=work.run)
    thread.start()
    try:
        assert tried.wait(10)
        engine.write(sealed)
        engine.complete(sealed, None)
    finally:
        thread.join(10)
    work.finish()
    assert engine._writer.synced_through == sealed.number
