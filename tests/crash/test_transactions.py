"""Transactions on the simulated disk: wherever the broker is stopped, all records of each are there, or none."""

from __future__ import annotations

from random import Random

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.crash.simdisk import Crash

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS
from penstock.log.file_engine import LogSettings

TOPICS = ("orders", "bills", "letters")
TRANSACTIONS = 4


def commit(fixture: BrokerFixture, number: int) -> None:
    """A transaction with a record in each topic."""
    transactions = fixture.broker.transactions
    txn = transactions.begin(ANONYMOUS, "connection", DEFAULT_SCOPE)
    for topic in TOPICS:
        transactions.add(ANONYMOUS, txn, DEFAULT_SCOPE, topic, b"%d" % number)
    transactions.commit(ANONYMOUS, txn)


def stored(fixture: BrokerFixture, topic: str) -> list[bytes]:
    plan = fixture.broker.fetch.plan(ANONYMOUS, DEFAULT_SCOPE, topic, 0, 0, 1 << 20, 1000)
    return [value for part in plan.run() for value in part.values()]


def stopped_at(boundary: int, *, power: bool) -> bool:
    """Stop at this operation of the disk, start again, and look; False if the transactions were done before it. Every
    append is a commit group of its own."""
    settings = LogSettings(file_bytes=16_384, group_bytes=1, snapshot_bytes=1_000)
    fixture = BrokerFixture(settings)
    for topic in TOPICS:
        fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, topic, 1)
    fixture.commit()
    fixture.disk.crash_at(fixture.disk.operations + boundary)
    acknowledged, crashed = 0, False
    try:
        for number in range(TRANSACTIONS):
            commit(fixture, number)
            fixture.commit()
            acknowledged += 1
    except Crash:
        crashed = True
    fixture.disk = fixture.disk.crash(Random(boundary)) if power else fixture.disk.kill()
    fixture.open()
    found = [stored(fixture, topic) for topic in TOPICS]
    assert found[0] == found[1] == found[2], f"a transaction is split by a crash at boundary {boundary}"
    assert found[0] == [b"%d" % number for number in range(len(found[0]))]
    assert len(found[0]) >= acknowledged
    return crashed


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
def test_a_crash_at_every_boundary_leaves_transactions_whole(power: bool) -> None:
    boundary = 0
    while stopped_at(boundary, power=power):
        boundary += 1
    assert boundary > 2 * TRANSACTIONS
