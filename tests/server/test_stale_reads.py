"""The broker of a standby, on a journal in memory: it follows the owner's, writes nothing, and hands its engine on."""

from __future__ import annotations

import asyncio

import pytest
from tests.crash.simdisk import SimDisk
from tests.log.kafka.cell_harness import QUIET, SMALL, START, CellHarness, source
from tests.log.kafka.sim_journal import SimJournal

from penstock.broker.broker import Broker
from penstock.broker.errors import ShuttingDown
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS
from penstock.config.settings import Settings
from penstock.log.errors import LogUnavailable
from penstock.log.kafka.opening import CellOpening
from penstock.server import stale_reads
from penstock.server.stale_reads import StaleReads
from penstock.transport.endpoint import Endpoint


class NoProcess:
    """In the place of the Flight process."""

    def __init__(self, broker: Broker, _: object) -> None:
        self.broker = broker

    async def start(self) -> bool:
        return True

    async def stop(self) -> None: ...


class Port:
    endpoint = Endpoint("127.0.0.1", 1)


def test_a_standby_follows_and_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale_reads, "FlightWorker", NoProcess)
    journal = SimJournal()
    owner = CellHarness(journal, SimDisk())
    owners = Broker(owner.engine)
    owners.topics.create(ANONYMOUS, DEFAULT_SCOPE, "old", 1)
    owner.settle()

    async def follow() -> None:
        loop = asyncio.get_running_loop()
        opening = CellOpening(journal, source(), SimDisk(), SMALL, loop, lambda: START, QUIET)
        cell = opening.cell
        cell.catch_up()
        reads = StaleReads(Settings(), "unused", loop, None, Port())  # type: ignore[arg-type] # no threads, no port
        reads.begin(cell)
        assert reads._worker is not None
        broker: Broker = reads._worker.broker  # type: ignore[attr-defined]
        assert names(broker) == ["old"]
        owners.topics.create(ANONYMOUS, DEFAULT_SCOPE, "new", 1)
        owners.produce.append(ANONYMOUS, DEFAULT_SCOPE, "new", 0, [b"1", b"2"])
        await asyncio.to_thread(owner.settle)
        cell.follow(1)
        assert names(broker) == ["new", "old"]
        assert broker.topics.bounds(ANONYMOUS, DEFAULT_SCOPE, ["new"])["new"][0].high_watermark == 2
        with pytest.raises(LogUnavailable, match="standby and serves reads only"):
            broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "new", 0, [b"3"])
        with pytest.raises(LogUnavailable, match="standby and serves reads only"):
            broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "mine", 1)
        assert names(broker) == ["new", "old"]
        await asyncio.to_thread(owner.kill)
        assert opening.own(b"{}")
        reads.end(cell)
        await reads.stop()
        with pytest.raises(ShuttingDown):
            broker.topics.list(ANONYMOUS, DEFAULT_SCOPE)
        took_over = Broker(opening.engine)
        took_over.topics.create(ANONYMOUS, DEFAULT_SCOPE, "mine", 1)
        assert names(took_over) == ["mine", "new", "old"]
        await asyncio.to_thread(opening.engine.close)

    asyncio.run(follow())


def names(broker: Broker) -> list[str]:
    return sorted(topic.name for topic in broker.topics.list(ANONYMOUS, DEFAULT_SCOPE))
