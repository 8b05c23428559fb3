"""The FlyMQ clients and the real broker: a kill in between, other doors to the same records, users of the shell."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess, penstock

from penstock.clients.flymq import (
    AsyncClient,
    AsyncConsumer,
    AsyncProducer,
    AuthenticationRequired,
    Client,
    Consumer,
    LoginFailed,
    Producer,
    Record,
    ReplyError,
    TransactionOver,
    Unauthorized,
)
from penstock.clients.rustlog import Client as RustLogClient


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as broker:
        yield broker.ready()


def kill(broker: BrokerProcess) -> None:
    broker.signal(signal.SIGKILL)
    assert broker.finish()[0] == -signal.SIGKILL


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def take(consumer: Consumer, count: int) -> list[Record]:
    """So many records; fewer only if they do not come for long."""
    found: list[Record] = []
    end = time.monotonic() + 20
    while len(found) < count and time.monotonic() < end:
        found += consumer.poll(count - len(found), timeout=0.5)
    return found


def test_a_consumer_goes_on_after_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        host, port = broker.ready().endpoint("flymq")
        with Client(host, port) as client:
            client.create_topic("orders", 3)
            with Producer(client) as producer:
                sent = [producer.send("orders", value, b"key %d" % (len(value) % 5)) for value in numbers(0, 1000)]
            places = {(one.result().partition, one.result().offset): number for number, one in enumerate(sent)}
            consumer = Consumer(client, "orders", group="workers", auto_commit=False)
            first = take(consumer, 400)
            consumer.commit()
            first += take(consumer, 100)
            kill(broker)
            with BrokerProcess(tmp_path, "--listen", f"flymq={host}:{port}") as again:
                again.ready()
                rest = take(consumer, 500)  # the same consumer, on a new connection, from where it was
                found = first + rest
                assert {(record.partition, record.offset): int(record.value) for record in found} == places
                assert len(found) == 1000
                assert client.produce("orders", b"more", partition=0).offset == max(o for p, o in places if p == 0) + 1
                offsets = client.describe_group("orders", "workers").offsets
                assert sum(committed.offset for committed in offsets) == 400
                another = Consumer(client, "orders", group="workers")  # from the commit
                assert len(take(another, 601)) == 601


def test_a_transaction_is_there_or_not_after_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        host, port = broker.ready().endpoint("flymq")
        with Client(host, port) as client:
            with client.transaction() as done:
                done.produce("a", b"1")
                done.produce("b", b"2")
            with pytest.raises(TransactionOver), client.transaction() as lost:
                lost.produce("a", b"3")
                kill(broker)
                again = BrokerProcess(tmp_path, "--listen", f"flymq={host}:{port}").ready()
            with again:
                client.commit_transaction(done.id)  # asked again, it counts once
                assert [record.value for record in client.fetch("a", 0, 0).records] == [b"1"]
                assert [record.value for record in client.fetch("b", 0, 0).records] == [b"2"]


def test_what_one_door_takes_the_other_gives_at_the_same_offset(broker: BrokerProcess) -> None:
    """On one port: the first byte tells who is there."""
    address = broker.endpoint("rustlog")
    with Client(*address) as fly, RustLogClient(*address) as rust:
        fly.create_topic("orders", 2)
        assert fly.produce("orders", b"fly 0", b"key", 1).offset == 0
        assert rust.produce("orders", 1, [b"rust 1", b"rust 2"]).base_offset == 1
        assert fly.produce_batch("orders", [b"fly 3"], partitions=1).offsets == [3]
        expected = [(0, b"fly 0"), (1, b"rust 1"), (2, b"rust 2"), (3, b"fly 3")]
        assert [(record.offset, record.payload) for record in rust.fetch("orders", 1, 0).records] == expected
        assert [(record.offset, record.value) for record in fly.fetch("orders", 1, 0).records] == expected
        assert fly.consume("orders", 2, 1).value == b"rust 2"
        assert rust.commit_offset("workers", "orders", 1, 3)
        assert fly.get_offset("orders", "workers", 1) == 3
        fly.commit("orders", "workers", 1, 4)
        assert rust.fetch_offset("workers", "orders", 1) == 4


def test_the_same_on_asyncio(tmp_path: Path) -> None:
    async def talk(broker: BrokerProcess) -> None:
        host, port = broker.endpoint("flymq")
        async with AsyncClient(host, port) as client:
            async with AsyncProducer(client, max_records=100) as producer:
                for value in numbers(0, 500):
                    await producer.send("orders", value)
            assert len(await client.produce_many("orders", numbers(500, 1000))) == 500
            async with client.transaction() as transaction:
                await transaction.produce("orders", b"1000")
            consumer = AsyncConsumer(client, "ord+/#", group="workers")
            assert await consumer.poll(timeout=0) == []  # no such level
            found = []
            async with AsyncConsumer(client, "orders/#", group="workers") as reading:
                async for record in reading:
                    found.append(record.value)
                    if len(found) == 600:
                        break
            kill(broker)
            with BrokerProcess(tmp_path, "--listen", f"flymq={host}:{port}") as again:
                await asyncio.to_thread(again.ready)
                async for record in AsyncConsumer(client, "orders", group="workers"):
                    found.append(record.value)
                    if len(found) == 1001:
                        break
                assert found == numbers(0, 1001)

    with BrokerProcess(tmp_path) as broker:
        asyncio.run(asyncio.wait_for(talk(broker.ready()), 60))


def test_users_of_the_command_line_log_in(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    added = penstock("users", "add", "root", "--role", "admin", "--generate", "--data-dir", data)
    assert added.returncode == 0, added.stderr
    password = added.stdout.strip()
    with BrokerProcess(tmp_path / "data", PENSTOCK_SECURITY__MODE="on") as broker:
        address = broker.ready().endpoint("flymq")
        with Client(*address) as stranger, pytest.raises(AuthenticationRequired):
            stranger.create_topic("orders")
        with Client(*address, username="root", password="guess") as guess, pytest.raises(LoginFailed):
            guess.connect()
        with Client(*address, username="root", password=password) as root:
            root.create_topic("orders")
            root.create_user("alice", "wonderland rabbit", ["producer"])
            with Client(*address, username="alice", password="wonderland rabbit") as alice:
                assert alice.produce("orders", b"one").offset == 0
                with pytest.raises(Unauthorized):
                    alice.fetch("orders", 0, 0)


def test_settings_reach_the_door(tmp_path: Path) -> None:
    settings = {
        "PENSTOCK_TOPICS__MAX_DELAY_SECONDS": "1",
        "PENSTOCK_TOPICS__TRANSACTION_SECONDS": "1",
        "PENSTOCK_FLYMQ__AUTH_REPLY": "spec",
        "PENSTOCK_FLYMQ__FETCH_WAIT_SECONDS": "0.5",
        "PENSTOCK_FLYMQ__NODE": "node-7",
        "PENSTOCK_FLYMQ__ADVERTISED": "broker.example:9092",
    }
    with BrokerProcess(tmp_path, **settings) as broker:
        host, port = broker.ready().endpoint("flymq")
        with Client(host, port) as client:
            assert client.authenticate("anyone", "anything").username == "anyone"
            (node,) = client.cluster_status().nodes
            assert (node.node_id, node.address) == ("node-7", "broker.example:9092")
            with pytest.raises(ReplyError, match="exceeds maximum allowed delay"):
                client.produce_delayed("orders", b"v", delay_ms=1_001)
            transaction = client.begin()
            client.produce("orders", b"v")
            began = time.monotonic()
            assert client.fetch("orders", 0, 1, 10).records == []
            assert time.monotonic() - began >= 0.4
            time.sleep(1.5)
            with pytest.raises(TransactionOver):
                client.commit_transaction(transaction)
