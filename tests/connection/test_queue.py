"""Work queues through `penstock.connect`: shared by name, acknowledged or given back, and their dead letters."""

from __future__ import annotations

import asyncio

import pytest

import penstock
from penstock.connection import Connection
from penstock.connection.queue import Queue


def drained(queue: Queue) -> list[bytes]:
    found = []
    while (message := queue.get(0)) is not None:
        found.append(message.value)
        message.ack()
    return found


def test_a_message_goes_to_one_of_those_who_share_the_queue(db: Connection, address: str) -> None:
    one = db.queue("shared", "workers")
    with penstock.connect(address) as other:
        two = other.queue("shared", "workers")
        db.produce_many("shared", [b"%d" % number for number in range(10)])
        first = one.get(5)
        assert first is not None
        first.ack()
        assert [first.value, *drained(two), *drained(one)] == [b"%d" % number for number in range(10)]


def test_a_name_holds_what_was_not_done(db: Connection, address: str) -> None:
    db.queue("kept", "workers", lease=0.05).close()
    db.produce_many("kept", [b"a", b"b"])
    with penstock.connect(address) as other:
        queue = other.queue("kept", "workers")
        message = queue.get(5)
        assert message is not None
        assert message.value == b"a"
        # not acknowledged: it comes again when its lease is over
    with db.queue("kept", "workers") as queue:
        found = set()
        for message in queue:
            found.add(message.text)
            message.ack()
            if found == {"a", "b"}:
                break


def test_what_fails_comes_again_and_becomes_a_dead_letter(db: Connection) -> None:
    queue = db.queue("failing", "workers", attempts=2)
    db.produce("failing", b"bad")
    for _ in range(2):
        with pytest.raises(RuntimeError):
            message = queue.get(5)
            assert message is not None
            with message:
                raise RuntimeError
    while not (letters := queue.dead_letters.list()):
        assert queue.get(0.01) is None
    (letter,) = letters
    assert (letter.value, letter.attempts) == (b"bad", 2)
    queue.dead_letters.replay(letter.id)
    assert queue.dead_letters.list() == []
    with queue.get(5) or pytest.fail("it was not there again") as message:
        assert message.value == b"bad"
    db.produce("failing", b"worse")
    for _ in range(2):
        (queue.get(5) or pytest.fail("it was not delivered")).nack()
    while not queue.dead_letters.list():
        assert queue.get(0.01) is None
    queue.dead_letters.purge()
    assert queue.dead_letters.list() == []


def test_the_same_with_asyncio(address: str) -> None:
    async def main() -> None:
        async with await penstock.aconnect(address) as db, db.queue("aio-jobs", "workers") as queue:
            assert await queue.get() is None
            await db.produce("aio-jobs", b"one")
            await db.produce("aio-jobs", b"two")
            async for message in queue:
                async with message:
                    if message.text == "two":
                        break
            assert await queue.get() is None
            assert await queue.dead_letters.list() == []

    asyncio.run(main())
