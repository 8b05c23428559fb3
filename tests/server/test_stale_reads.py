"""The broker of a standby, on a journal in memory: it follows the owner's, writes nothing, and hands its engine on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.simdisk import SimDisk
from tests.log.kafka.replica_harness import QUIET, SMALL, START, ReplicaHarness, source
from tests.log.kafka.sim_journal import SimJournal

from penstock.broker.broker import Broker
from penstock.broker.errors import ShuttingDown
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.runtime.executor import ThreadPool
from penstock.broker.security.access import ANONYMOUS
from penstock.config.settings import Settings
from penstock.flight.client import FlightLog
from penstock.flight.errors import LogUnavailable as Unavailable
from penstock.flight.errors import RequestRefused
from penstock.flight.options import BrokerOptions
from penstock.log.errors import LogUnavailable
from penstock.log.files import OsFiles
from penstock.log.kafka.opening import ReplicaOpening
from penstock.server import stale_reads
from penstock.server.stale_reads import StaleReads
from penstock.transport.endpoint import Endpoint
from penstock.transport.tcp_listener import BindAddress, ReservedPort


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
    owner = ReplicaHarness(journal, SimDisk())
    owners = Broker(owner.engine)
    owners.topics.create(ANONYMOUS, DEFAULT_SCOPE, "old", 1)
    owner.settle()

    async def follow() -> None:
        loop = asyncio.get_running_loop()
        opening = ReplicaOpening(journal, source(), SimDisk(), SMALL, loop, lambda: START, QUIET)
        replica = opening.replica
        replica.catch_up()
        reads = StaleReads(Settings(), "unused", loop, None, Port())  # type: ignore[arg-type] # no threads, no port
        reads.begin(replica)
        assert reads._worker is not None
        broker: Broker = reads._worker.broker  # type: ignore[attr-defined]
        assert names(broker) == ["old"]
        owners.topics.create(ANONYMOUS, DEFAULT_SCOPE, "new", 1)
        owners.produce.append(ANONYMOUS, DEFAULT_SCOPE, "new", 0, [b"1", b"2"])
        await asyncio.to_thread(owner.settle)
        replica.follow(1)
        assert names(broker) == ["new", "old"]
        assert broker.topics.bounds(ANONYMOUS, DEFAULT_SCOPE, ["new"])["new"][0].high_watermark == 2
        with pytest.raises(LogUnavailable, match="standby and serves reads only"):
            broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "new", 0, [b"3"])
        with pytest.raises(LogUnavailable, match="standby and serves reads only"):
            broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "mine", 1)
        assert names(broker) == ["new", "old"]
        await asyncio.to_thread(owner.kill)
        assert opening.own(b"{}")
        reads.end(replica)
        await reads.stop()
        with pytest.raises(ShuttingDown):
            broker.topics.list(ANONYMOUS, DEFAULT_SCOPE)
        took_over = Broker(opening.engine)
        took_over.topics.create(ANONYMOUS, DEFAULT_SCOPE, "mine", 1)
        assert names(took_over) == ["mine", "new", "old"]
        await asyncio.to_thread(opening.engine.close)

    asyncio.run(follow())


@pytest.mark.process
def test_a_standby_answers_queries_for_what_it_has(tmp_path: Path) -> None:
    """With the processes that a broker has: Flight, which is asked, and SQL behind it."""
    journal = SimJournal()
    owner = ReplicaHarness(journal, SimDisk())
    owners = Broker(owner.engine)
    owners.topics.create(ANONYMOUS, DEFAULT_SCOPE, "orders", 1)
    owners.produce.append(ANONYMOUS, DEFAULT_SCOPE, "orders", 0, [b'{"n": 1}', b'{"n": 2}'])
    owner.settle()

    async def follow() -> None:
        loop = asyncio.get_running_loop()
        opening = ReplicaOpening(journal, source(), OsFiles(str(tmp_path)), SMALL, loop, lambda: START, QUIET)
        replica = opening.replica
        replica.catch_up()
        with ThreadPool(2) as threads, flight_port() as port:
            reads = StaleReads(Settings(data_dir=str(tmp_path)), str(tmp_path), loop, threads, port)
            reads.begin(replica)
            assert reads._starting is not None
            await reads._starting
            endpoint = (port.endpoint.host, port.endpoint.port)
            ask = FlightLog(BrokerOptions((endpoint,), DEFAULT_SCOPE), retries=0).sql
            try:
                before = opening.engine.position
                found = await asyncio.to_thread(ask, "SELECT sum(n) AS n FROM orders WHERE n > $1", [1])
                assert found.to_pylist() == [{"n": 2}]
                assert found.schema.metadata == {b"penstock.position": b"%d" % before, b"penstock.stale": b"true"}

                # A query of a position that the standby does not have yet waits for it.
                owners.produce.append(ANONYMOUS, DEFAULT_SCOPE, "orders", 0, [b'{"n": 40}'])
                await asyncio.to_thread(owner.settle)
                after = owner.engine.position
                assert after > opening.engine.position
                asking = asyncio.create_task(asyncio.to_thread(ask, "SELECT sum(n) AS n FROM orders", [], after))
                await asyncio.sleep(0.1)
                assert not asking.done()
                replica.follow(1)
                found = await asking
                assert found.to_pylist() == [{"n": 43}]
                assert found.schema.metadata[b"penstock.position"] == b"%d" % after
                found = await asyncio.to_thread(ask, f"SELECT sum(n) AS n FROM orders AT OFFSET {before}")
                assert found.to_pylist() == [{"n": 3}]

                for statement, error, said in (
                    ("INSERT INTO orders (n) VALUES (5)", Unavailable, "standby and serves reads only"),
                    ("CREATE TABLE mine (id BIGINT)", Unavailable, "standby and serves reads only"),
                    ("SELECT * FROM nothing", RequestRefused, "not found"),
                    ("SELECT (", RequestRefused, "Not SQL"),
                ):
                    with pytest.raises(error, match=said):
                        await asyncio.to_thread(ask, statement)
            finally:
                reads.end(replica)
                await reads.stop()
        await asyncio.to_thread(opening.engine.close)

    asyncio.run(follow())
    owner.kill()


@contextlib.contextmanager
def flight_port() -> Iterator[ReservedPort]:
    port = ReservedPort(BindAddress(Endpoint("127.0.0.1", 0), ("flight",)))
    try:
        yield port
    finally:
        port.close()


def names(broker: Broker) -> list[str]:
    return sorted(topic.name for topic in broker.topics.list(ANONYMOUS, DEFAULT_SCOPE))
