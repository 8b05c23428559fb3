"""Producers of both kinds: which records go together, and what becomes of them."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from tests.clients.flymq.conftest import Connect
from tests.clients.flymq.faulty_proxy import Fault, FaultyProxy
from tests.clients.flymq.running_server import RunningServer

from penstock.clients.flymq import (
    AsyncClient,
    AsyncProducer,
    Client,
    ConnectionFailed,
    NotFound,
    OutcomeUnknown,
    Producer,
    RetryPolicy,
    Unsendable,
)
from penstock.clients.flymq.batches import RECORD_OVERHEAD, Batcher
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.opcodes import Op

# -- which records go together


def added(batcher: Batcher, topic: str, size: int, now: float = 0.0) -> None:
    batcher.add(topic, bytes(size - RECORD_OVERHEAD), None, -1, now, object)


def sizes(batcher: Batcher, now: float, everything: bool = False) -> list[tuple[str, int]]:
    return [(batch.topic, len(batch.values)) for batch in batcher.due(now, everything)]


def test_a_batch_is_due_when_it_is_full() -> None:
    batcher = Batcher(max_records=3, max_bytes=1000, linger=60)
    for _ in range(7):
        added(batcher, "t", 20)
    assert batcher.wait(0) == 0
    assert sizes(batcher, 0) == [("t", 3), ("t", 3)]
    assert batcher.wait(0) == 60
    assert sizes(batcher, 0) == []
    assert sizes(batcher, 0, everything=True) == [("t", 1)]
    assert batcher.wait(0) is None


def test_a_batch_is_due_when_it_is_large() -> None:
    batcher = Batcher(max_records=100, max_bytes=100, linger=60)
    added(batcher, "t", 60)
    added(batcher, "t", 60)  # does not fit beside the first
    assert sizes(batcher, 0) == [("t", 1)]
    added(batcher, "t", 40)
    assert sizes(batcher, 0) == [("t", 2)]
    added(batcher, "t", 500)  # goes alone
    assert sizes(batcher, 0) == [("t", 1)]


def test_a_batch_is_due_when_its_first_record_has_waited() -> None:
    batcher = Batcher(max_records=100, max_bytes=1000, linger=5)
    added(batcher, "a", 20, now=100)
    added(batcher, "b", 20, now=102)
    added(batcher, "a", 20, now=104)
    assert batcher.wait(104) == 1
    assert sizes(batcher, 104.9) == []
    assert sizes(batcher, 105) == [("a", 2)]
    assert batcher.wait(105) == 2
    assert sizes(batcher, 107) == [("b", 1)]


@pytest.mark.parametrize(
    ("records", "size", "linger"), [(0, 1, 0), (100_001, 1, 0), (1, 0, 0), (1, 1 << 30, 0), (1, 1, -1)]
)
def test_a_batch_has_limits(records: int, size: int, linger: float) -> None:
    with pytest.raises(ValueError, match="a batch has"):
        Batcher(records, size, linger)


# -- what becomes of them


def test_records_are_stored_in_order_and_each_delivery_has_its_offset(
    proxy: FaultyProxy, connect: Connect, topic: str
) -> None:
    client = connect(proxy.port)
    client.create_topic(topic, 2)
    with client.producer(max_records=100, linger=60) as producer:
        sent = [producer.send(topic, b"%d" % number, b"key", 1) for number in range(250)]
        other = producer.send(f"{topic}-other", b"value")
    places = [one.result() for one in sent]
    assert [(place.topic, place.partition, place.offset) for place in places] == [(topic, 1, n) for n in range(250)]
    assert {(place.key_size, place.value_size) for place in places[100:]} == {(3, 3)}
    assert all(one.done for one in sent)
    assert other.result().key_size == m.NO_KEY
    assert [record.value for record in client.fetch(topic, 1, 0, 1000).records] == [b"%d" % n for n in range(250)]
    assert proxy.opcodes.count(Op.PRODUCE_BATCH) == 4
    with pytest.raises(ValueError, match="closed"):
        producer.send(topic, b"late")


def test_a_batch_that_is_refused_fails_its_records_and_the_next_flush(
    running: RunningServer, connect: Connect, topic: str
) -> None:
    client = connect(running.port)
    client.create_topic(topic)
    with client.producer(linger=60) as producer:
        bad = producer.send(topic, b"x", partition=5)
        also = producer.send(topic, b"y")  # in the same batch
        good = producer.send(f"{topic}-other", b"z")
        with pytest.raises(NotFound, match="partition 5"):
            producer.flush()
        for one in (bad, also):
            with pytest.raises(NotFound):
                one.result()
        assert good.result().offset == 0
        producer.flush()  # raised once
        assert producer.send(topic, b"y").done is False


def test_what_cannot_be_sent_is_refused_at_once(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    with client.producer(linger=60) as producer:
        good = producer.send(topic, b"x")
        for name, value, partition in (("n" * 70_000, b"", -1), (topic, bytes(34_000_000), -1), (topic, b"", 2**31)):
            with pytest.raises(Unsendable):
                producer.send(name, value, None, partition)
    assert good.result().offset == 0


def test_a_batch_in_doubt_is_not_repeated(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    client.create_topic(topic)
    producer = client.producer(linger=60)
    proxy.faults.append(Fault.DROP)
    sent = producer.send(topic, b"one")
    with pytest.raises(OutcomeUnknown):
        producer.close()
    with pytest.raises(OutcomeUnknown):
        sent.result()
    assert client.fetch(topic, 0, 0).next_offset == 1


def test_unless_that_is_wanted(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    client.create_topic(topic)
    with client.producer(linger=60, retry=True) as producer:
        proxy.faults.append(Fault.DROP)
        sent = [producer.send(topic, b"one"), producer.send(topic, b"two")]
    assert [one.result().offset for one in sent] == [2, 3]
    values = [record.value for record in client.fetch(topic, 0, 0).records]
    assert values == [b"one", b"two", b"one", b"two"]


def test_without_a_server_nothing_waits_for_ever(connect: Connect) -> None:
    client = connect(1, retry=RetryPolicy(attempts=1))
    producer = client.producer(linger=60)
    producer.send("t", b"one")
    with pytest.raises(ConnectionFailed):
        producer.close()


def test_a_value_that_is_no_bytes_fails_and_the_producer_goes_on(
    running: RunningServer, connect: Connect, topic: str
) -> None:
    client = connect(running.port)
    with client.producer(linger=60) as producer:
        producer.send(topic, "text")
        with pytest.raises(Unsendable):
            producer.flush()
        good = producer.send(topic, b"bytes")
    assert good.result().offset == 0


# -- time


def test_linger_sends_without_a_flush(running: RunningServer, topic: str) -> None:
    with Client(port=running.port) as client, Producer(client, linger=0.01) as producer:
        assert producer.send(topic, b"one").result(timeout=20).offset == 0
        assert producer.send(topic, b"two").result(timeout=20).offset == 1


def test_linger_sends_without_a_flush_on_asyncio(running: RunningServer, topic: str) -> None:
    async def scene() -> None:
        async with AsyncClient(port=running.port) as client, AsyncProducer(client, linger=0.01) as producer:
            for offset in range(3):
                assert (await (await producer.send(topic, b"x"))).offset == offset

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_a_result_that_takes_too_long_is_not_waited_for(running: RunningServer, topic: str) -> None:
    with Client(port=running.port) as client, Producer(client, linger=60) as producer:
        sent = producer.send(topic, b"one")
        with pytest.raises(TimeoutError):
            sent.result(timeout=0.01)


def test_a_full_buffer_makes_senders_wait(proxy: FaultyProxy, topic: str) -> None:
    proxy.faults.append(Fault.SILENCE)
    with Client(port=proxy.port, timeout=60) as client:
        producer = Producer(client, max_records=1, linger=0, buffer_bytes=2000)
        producer.send(topic, bytes(3000))
        blocked = threading.Thread(target=lambda: producer.send(topic, b"waits"), daemon=True)
        blocked.start()
        blocked.join(0.3)
        assert blocked.is_alive()
        proxy.drop_connections()
        blocked.join(20)
        assert not blocked.is_alive()
        with pytest.raises(OutcomeUnknown):
            producer.close()


def test_a_full_buffer_makes_tasks_wait(proxy: FaultyProxy, topic: str) -> None:
    async def scene() -> None:
        async with AsyncClient(port=proxy.port, timeout=60) as client:
            producer = AsyncProducer(client, max_records=1, linger=0, buffer_bytes=2000)
            await producer.send(topic, bytes(3000))
            blocked = asyncio.create_task(producer.send(topic, b"waits"))
            await asyncio.sleep(0.2)
            assert not blocked.done()
            await asyncio.to_thread(proxy.drop_connections)
            sent = await blocked
            with pytest.raises(OutcomeUnknown):
                await producer.close()
            assert (await sent).value_size == 5

    proxy.faults.append(Fault.SILENCE)
    asyncio.run(asyncio.wait_for(scene(), 30))


def test_threads_share_a_producer(running: RunningServer, topic: str) -> None:
    with Client(port=running.port) as client:
        with Producer(client, max_records=50) as producer:

            def work(name: int) -> None:
                for number in range(200):
                    producer.send(topic, b"%d %d" % (name, number))

            threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        found = [record.value.split() for record in client.fetch(topic, 0, 0, 1000).records]
    assert len(found) == 800
    for name in range(4):
        assert [int(number) for who, number in found if int(who) == name] == list(range(200))


def test_a_cancelled_flush_does_not_hinder_the_next(running: RunningServer, topic: str) -> None:
    async def scene() -> None:
        async with AsyncClient(port=running.port) as client, AsyncProducer(client, linger=60) as producer:
            sent = await producer.send(topic, b"one")
            flush = asyncio.create_task(producer.flush())
            await asyncio.sleep(0)
            flush.cancel()
            await producer.flush()
            assert (await sent).offset == 0

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_sending_is_quicker_than_one_request_for_each_record(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    """While a request is under proxy records gather for the next: requests are far fewer than records."""
    client = connect(proxy.port)
    began = time.monotonic()
    with client.producer() as producer:
        for number in range(5000):
            producer.send(topic, b"%d" % number)
    assert client.metadata(topic).partitions[0].newest_offset == 5000
    assert proxy.opcodes.count(Op.PRODUCE_BATCH) <= 5 + (time.monotonic() - began) / 0.005
