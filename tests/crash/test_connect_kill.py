"""`penstock.connect` and a broker that is killed and started again under load: nothing acknowledged is lost, nothing of
an idempotent producer is there twice, and consumers and workers go on by themselves."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

from tests.histories.checker import check
from tests.histories.history import History, Operation, Place
from tests.launcher import RestartableBroker
from tests.ports import steady_port

import penstock
from penstock.clients import flymq
from penstock.connection import PenstockError

KILLS = 3
ORDERS, TASKS, JOBS = Place("orders", 0), Place("tasks", 0), Place("jobs", 0)
PATIENCE = 60.0  # seconds until something must have gone on


class Load:
    """Clients that know nothing of kills, and what they were told."""

    def __init__(self, address: str) -> None:
        self.history = History()
        self.stop = threading.Event()
        self.consumed: list[str] = []
        self.worked: list[str] = []
        self.acknowledged = 0
        self.failures: list[BaseException] = []
        self._address = address

    def produce(self) -> None:
        """A blocking producer, with hundreds of records on their way."""
        number = 0
        on_way: deque[tuple[Operation, flymq.Delivery]] = deque()
        with penstock.connect(self._address) as db, db.producer(max_records=50, linger=0.002) as producer:
            while not self.stop.is_set() or on_way:
                while len(on_way) < 300 and not self.stop.is_set():
                    number += 1
                    operation = self.history.invoke("producer", "append", ORDERS, [f"p{number}"], idempotent=True)
                    on_way.append((operation, producer.send("orders", f"p{number}")))
                operation, delivery = on_way.popleft()
                self.history.acknowledge(operation, offset=delivery.result(PATIENCE).offset)
                self.acknowledged += 1

    def produce_tasks(self) -> None:
        """Tasks of an event loop that produce single records at the same time."""

        async def one(db: penstock.connection.AsyncConnection, name: str) -> None:
            number = 0
            while not self.stop.is_set():
                number += 1
                ids = [f"{name}-{number}"]
                operation = self.history.invoke(name, "append", TASKS, ids, idempotent=True)
                place = await db.produce("tasks", ids[0])
                self.history.acknowledge(operation, offset=place.offset)

        async def main() -> None:
            async with await penstock.aconnect(self._address) as db:
                await asyncio.gather(*[one(db, f"task{number}") for number in range(8)])

        asyncio.run(main())

    def consume(self) -> None:
        with penstock.connect(self._address) as db, db.consume("orders", "readers", commit_seconds=0.05) as consumer:
            while (records := consumer.poll(500, 0.5)) or not self.stop.is_set():
                self.consumed += [record.text for record in records]

    def work(self) -> None:
        with penstock.connect(self._address) as db, db.queue("jobs", "workers", lease=2.0, attempts=0) as queue:
            while not self.stop.is_set() or len(set(self.worked)) < 40:
                message = queue.get(0.2)
                if message is not None:
                    self.worked.append(message.text)
                    message.ack()

    def guarded(self, client: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                client()
            except BaseException as error:  # noqa: BLE001 - for the test to tell
                self.failures.append(error)
                self.stop.set()

        return run


def test_a_broker_is_killed_under_load(tmp_path: Path) -> None:
    port = steady_port()
    address = f"127.0.0.1:{port}"
    with RestartableBroker(str(tmp_path), doors={"flymq": address, "blipmq": "127.0.0.1:0"}) as broker:
        broker.start()
        load = Load(address)
        with penstock.connect(address) as db:
            for place in (ORDERS, TASKS):
                first = load.history.invoke("setup", "append", place, ["first"])
                load.history.acknowledge(first, offset=db.produce(place.topic, "first").offset)
            db.queue("jobs", "workers", lease=2.0, attempts=0).close()
            db.produce_many("jobs", [f"job{number}" for number in range(40)])
        clients = (load.produce, load.produce_tasks, load.consume, load.work)
        threads = [threading.Thread(target=load.guarded(client), daemon=True) for client in clients]
        for thread in threads:
            thread.start()
        try:
            for _ in range(KILLS):
                goes_on(load)
                broker.kill()
                broker.start()
            goes_on(load)
        finally:
            load.stop.set()
            for thread in threads:
                thread.join(PATIENCE)
        assert load.failures == []
        assert not any(thread.is_alive() for thread in threads)
        with penstock.connect(address) as db:
            for place in (ORDERS, TASKS):
                ids = [record.text for record in db.consume(place.topic, follow=False)]
                assert [name for name, count in Counter(ids).items() if count > 1] == []
                load.history.note("reader", "contents", place, ids, offset=0, end=len(ids))
                if place is ORDERS:
                    assert load.consumed == ids  # each once: the consumer itself was not killed
    assert check(load.history) == []
    assert set(load.worked) == {f"job{number}" for number in range(40)}


def goes_on(load: Load) -> None:
    """Wait until clients have got some way since the broker is there."""
    wanted, end = load.acknowledged + 500, time.monotonic() + PATIENCE
    while load.acknowledged < wanted:
        assert load.failures == [] and time.monotonic() < end, f"{load.acknowledged} of {wanted}: {load.failures}"
        time.sleep(0.01)


def test_a_transaction_that_was_cut_off_is_nothing_and_may_be_run_again(tmp_path: Path) -> None:
    port = steady_port()
    address = f"127.0.0.1:{port}"
    with RestartableBroker(str(tmp_path), doors={"flymq": address, "blipmq": "127.0.0.1:0"}) as broker:
        broker.start()
        with penstock.connect(address) as db:
            for attempt in range(2):
                try:
                    with db.transaction() as transaction:
                        transaction.produce("both", "a")
                        if attempt == 0:
                            broker.kill()
                            broker.start()
                        transaction.produce("both", "b")
                except PenstockError:
                    assert attempt == 0
            assert [record.text for record in db.consume("both", follow=False)] == ["a", "b"]
