"""Producing and consuming, transactions, errors and the end, through `penstock.connect` and a real broker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from tests.ports import steady_port

import penstock
from penstock.clients import flymq
from penstock.connection import Connection


def test_importing_the_package_loads_no_client() -> None:
    program = (
        "import sys, penstock; assert not [m for m in sys.modules if m.startswith('penstock.c')]; penstock.connect; "
        "assert 'penstock.connection' in sys.modules; "
        "print(sorted(m for m in sys.modules if m.startswith(('penstock.broker', 'penstock.log', 'pyarrow', 'qh3'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_a_record_comes_back_with_all_that_it_was_given(db: Connection) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    place = db.produce("all", "wörd", key=b"\0k", headers=[("trace", b"\xff"), ("kind", "text")])
    assert (place.topic, place.partition, place.offset) == ("all", 0, 0)
    (record,) = db.consume("all", follow=False)
    assert (record.text, record.key, record.offset) == ("wörd", b"\0k", 0)
    assert record.headers == (("trace", b"\xff"), ("kind", b"text"))
    assert record.header("kind") == b"text"
    assert record.header("other") is None
    assert before < record.time < datetime.now(UTC) + timedelta(seconds=1)


def test_many_records_are_stored_in_order_and_in_batches(db: Connection) -> None:
    values = [b"%d" % number for number in range(2500)]
    places = db.produce_many("many", values, keys=[b"k"])
    assert [place.offset for place in places] == list(range(2500))
    records = list(db.consume("many", follow=False))
    assert [record.value for record in records] == values
    assert [record.key for record in records[:2]] == [b"k", None]
    assert db.produce_many("many", []) == []


def test_a_producer_gives_every_record_its_place(db: Connection) -> None:
    with db.producer(max_records=100) as producer:
        deliveries = [producer.send("pipe", b"%d" % number, headers={"n": str(number)}) for number in range(1000)]
        plain = producer.send("pipe", b"plain")
    assert [delivery.result().offset for delivery in deliveries] == list(range(1000))
    assert plain.result().offset == 1000
    records = list(db.consume("pipe", follow=False))
    assert [record.header("n") for record in records] == [*(b"%d" % number for number in range(1000)), None]


def test_a_refused_record_fails_its_batch_and_the_next_one_is_stored(db: Connection) -> None:
    with db.producer() as producer:
        producer.send("gap", b"first")
        producer.flush()
        wrong = producer.send("gap", b"nowhere", partition=7)
        with pytest.raises(penstock.PenstockError, match="partition 7"):
            producer.flush()
        with pytest.raises(flymq.NotFound):
            wrong.result()
        producer.send("gap", b"second")
    assert [record.value for record in db.consume("gap", follow=False)] == [b"first", b"second"]


def test_a_consumer_starts_where_it_is_told(db: Connection) -> None:
    db.produce_many("starts", [b"0", b"1"])
    (_, second) = db.consume("starts", follow=False)
    moment = second.time + timedelta(milliseconds=2)
    while db.produce("starts", b"late").timestamp <= moment.timestamp() * 1000:
        pass

    def first(start: penstock.connection.consumer.Start) -> bytes:
        return next(iter(db.consume("starts", start=start, follow=False))).value

    assert first("earliest") == b"0"
    assert first(1) == b"1"
    assert first(moment) == b"late"
    with db.consume("starts", start="latest") as consumer:
        assert consumer.poll(timeout=0) == []
        db.produce("starts", b"new")
        assert [record.value for record in consumer.poll(timeout=5)] == [b"new"]
        consumer.seek(0)
        assert consumer.poll(1)[0].value == b"0"
    with pytest.raises(ValueError, match="start is"):
        db.consume("starts", start="middle")  # type: ignore[arg-type]


def test_a_group_goes_on_where_it_has_committed(db: Connection) -> None:
    db.produce_many("grouped", [b"%d" % number for number in range(6)])

    def read(count: int, *, auto_commit: bool = True) -> list[bytes]:
        with db.consume("grouped", "g", auto_commit=auto_commit, follow=False) as consumer:
            return [record.value for _, record in zip(range(count), consumer, strict=False)]

    assert read(2) == [b"0", b"1"]
    assert read(2, auto_commit=False) == [b"2", b"3"]
    with db.consume("grouped", "g", auto_commit=False, follow=False) as consumer:
        assert [record.value for record in consumer.poll(3)] == [b"2", b"3", b"4"]
        consumer.commit()
        assert consumer.positions == {0: 5}
    with pytest.raises(RuntimeError), db.consume("grouped", "g", follow=False) as consumer:
        for _ in consumer:
            raise RuntimeError  # what was not done comes again
    assert read(9) == [b"5"]
    with pytest.raises(ValueError, match="without a group"):
        db.consume("grouped", follow=False).commit()


def test_all_partitions_are_read_or_those_that_are_named(db: Connection) -> None:
    db._client.create_topic("parts", 3)
    for number in range(9):
        db.produce("parts", b"%d" % number, partition=number % 3)
    assert sorted(record.value for record in db.consume("parts", follow=False)) == [b"%d" % n for n in range(9)]
    with db.consume("parts", "p", partitions=[1, 2], follow=False) as consumer:
        assert {record.partition for record in consumer} == {1, 2}
        assert consumer.positions == {1: 3, 2: 3}
    keyed = {db.produce("parts", b"v", key=b"same").partition for _ in range(4)}
    assert len(keyed) == 1


def test_records_that_appear_later_or_end(db: Connection) -> None:
    db.produce("timed", b"short", ttl=0.05)
    later = db.produce("timed", b"later", delay=3600)
    soon = db.produce("timed", b"soon", delay=0.05)
    db.cancel(later)
    with pytest.raises(flymq.NotFound):
        db.cancel(later)
    with db.consume("timed", start=1) as consumer:  # behind what ends
        assert [record.value for record in consumer.poll(timeout=5)] == [b"soon"]
    assert soon.offset != later.offset
    with pytest.raises(ValueError, match="not both"):
        db.produce("timed", b"", delay=1, ttl=1)
    db.produce("timed", b"with headers", ttl=3600, headers={"a": b"1"})
    (_, last) = db.consume("timed", start=1, follow=False)
    assert (last.value, last.headers) == (b"with headers", (("a", b"1"),))
    with pytest.raises(ValueError, match="above 0"):
        db.produce("timed", b"", ttl=0)


def test_a_transaction_is_there_as_a_whole_or_not_at_all(db: Connection) -> None:
    with db.transaction() as transaction:
        transaction.produce("debits", "10", key="a")
        transaction.produce("credits", b"10")
    with pytest.raises(RuntimeError), db.transaction() as transaction:
        transaction.produce("debits", b"20")
        raise RuntimeError
    assert [(record.key, record.value) for record in db.consume("debits", follow=False)] == [(b"a", b"10")]
    assert [record.value for record in db.consume("credits", follow=False)] == [b"10"]


def test_nobody_listens() -> None:
    with pytest.raises(penstock.PenstockError, match="No connection"):
        penstock.connect(f"127.0.0.1:{steady_port()}")
    with pytest.raises(penstock.PenstockError, match="No connection"):
        asyncio.run(penstock.aconnect(f"127.0.0.1:{steady_port()}"))


@pytest.mark.parametrize(
    "options",
    [
        {"user": "ann"},
        {"user": "ann", "password": "p", "key": "k"},
        {"key": "k", "token": "t"},
        {"user": "", "password": "p"},
    ],
)
def test_who_one_is_has_to_be_said_in_one_way(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"together|choose one|not empty"):
        penstock.connect("127.0.0.1:9092", **options)  # type: ignore[arg-type]


def test_a_topic_that_is_not_there_is_told(db: Connection) -> None:
    with pytest.raises(flymq.NotFound, match="nowhere"):
        list(db.consume("nowhere", follow=False))


def test_closing_flushes_and_commits(address: str) -> None:
    db = penstock.connect(address)
    db.producer(linger=60.0).send("closing", b"kept")
    db.produce("closed", b"v")
    next(iter(db.consume("closed", "g")))
    db.close()
    with penstock.connect(address) as again:
        assert [record.value for record in again.consume("closing", follow=False)] == [b"kept"]
        assert again.consume("closed", "g", follow=False).poll() == []


def test_the_same_with_asyncio(address: str) -> None:
    async def main() -> None:
        async with await penstock.aconnect(address) as db:
            places = await asyncio.gather(*[db.produce("aio", b"%d" % number) for number in range(100)])
            assert [place.offset for place in places] == list(range(100))
            async with db.producer() as producer:
                delivery = await producer.send("aio", b"more", headers={"a": "b"})
            assert (await delivery).offset == 100
            assert (await db.produce_many("aio", [b"x", b"y"]))[-1].offset == 102
            found = [record async for record in db.consume("aio", "g", follow=False)]
            assert [record.offset for record in found] == list(range(103))
            assert found[100].headers == (("a", b"b"),)
            async with db.transaction() as transaction:
                await transaction.produce("aio-two", b"t")
            await db.cancel(await db.produce("aio", b"later", delay=60))
            async with db.consume("aio-two") as consumer:
                async for record in consumer:
                    assert record.value == b"t"
                    break

    asyncio.run(main())
