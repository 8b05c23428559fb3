"""Pools: connections that are shared, bounded and looked after."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from tests.clients.kimberlite.scripted_server import Fault, ScriptedServer

from penstock.clients.kimberlite import Appended, AsyncPool, ConnectionFailed, ErrorCode, Pool, PoolTimeout, RetryPolicy
from penstock.wire.kimberlite import messages as m


@pytest.fixture
def pool(scripted: ScriptedServer) -> Iterator[Pool]:
    with Pool(scripted.address, 3, patience=10.0, timeout=5.0) as pool:
        yield pool


def test_threads_share_the_connections(scripted: ScriptedServer, pool: Pool) -> None:
    stream = scripted.stream("events")
    found: list[int] = []

    def work(number: int) -> None:
        found.extend(pool.query("SELECT $1", [number]).rows[0][0] for _ in range(10))  # type: ignore[misc]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted([*range(8)] * 10)
    assert 1 <= scripted.connections <= 3
    assert pool.append(stream, [b"x"]) == Appended(0, 1)
    assert pool.append_many(stream, [[b"y"], [b"z"]], 1) == [Appended(1, 1), Appended(2, 1)]


def test_nobody_gets_a_client_that_another_has(scripted: ScriptedServer) -> None:
    with Pool(scripted.address, 2, patience=0.1) as pool, pool.client() as first, pool.client() as second:
        assert first is not second
        with pytest.raises(PoolTimeout, match="All 2 connections"):
            pool.sync()


def test_who_waits_gets_the_next_that_is_free(scripted: ScriptedServer) -> None:
    with Pool(scripted.address, 1, patience=10.0) as pool:
        done = threading.Event()

        def work() -> None:
            pool.sync()
            done.set()

        with pool.client():
            thread = threading.Thread(target=work)
            thread.start()
            assert not done.wait(0.05)
        assert done.wait(10)
        thread.join()


def test_connections_that_do_not_hold_are_replaced(scripted: ScriptedServer, pool: Pool) -> None:
    with pool.client() as first, pool.client() as second:
        first.sync()
        second.sync()
    assert pool.check() == 0
    assert len(scripted.received(m.GetServerInfo)) == 2
    scripted.drop_connections()
    assert pool.check() == 2
    assert pool.check() == 0
    pool.sync()
    assert scripted.connections == 3


def test_they_are_looked_after_all_the_time(scripted: ScriptedServer) -> None:
    with Pool(scripted.address, health=0.02) as pool:
        pool.sync()
        scripted.wait_for(lambda: len(scripted.received(m.GetServerInfo)) >= 3)
        scripted.drop_connections()
        pool.sync()
    scripted.wait_for(lambda: not scripted.open)
    seen = len(scripted.requests)
    time.sleep(0.1)
    assert len(scripted.requests) == seen, "a closed pool is quiet"


def test_a_pool_that_is_closed(scripted: ScriptedServer) -> None:
    pool = Pool(scripted.address)
    with pool.client() as client:
        client.sync()
        pool.close()
        pool.close()
        client.sync()
    with pytest.raises(PoolTimeout, match="closed"):
        pool.sync()
    scripted.wait_for(lambda: scripted.open == 0)


def test_what_one_learns_of_the_leader_all_know(scripted: ScriptedServer) -> None:
    with ScriptedServer() as leader, Pool(scripted.address, 2) as pool:
        scripted.errors.append(m.ErrorResponse(ErrorCode.NOT_LEADER, f"not leader, try {leader.address}"))
        with pool.client() as first, pool.client() as second:
            first.sync()
            second.sync()
        assert len(scripted.requests) == 1
        assert len(leader.requests) == 2


def test_arguments_are_refused_at_once(scripted: ScriptedServer) -> None:
    before = set(threading.enumerate())
    for wrong in ({"size": 0}, {"health": 0}, {"timeout": 0}, {"version": "6"}):
        with pytest.raises(ValueError, match=r"must be|is no version"):
            Pool(scripted.address, **wrong)
    assert not [thread for thread in threading.enumerate() if thread not in before]


def test_tasks_are_spread_over_connections(scripted: ScriptedServer) -> None:
    async def main() -> None:
        async with AsyncPool(scripted.address, 3) as pool:
            found = await asyncio.gather(*[pool.query("SELECT $1", [number]) for number in range(30)])
            assert [rows.rows for rows in found] == [[[number]] for number in range(30)]
            stream = scripted.stream("events")
            assert await pool.append(stream, [b"x"]) == Appended(0, 1)
            assert await pool.append_many(stream, [[b"y"]], 1) == [Appended(1, 1)]
            scripted.hold = 3
            await asyncio.gather(*[pool.client().sync() for _ in range(3)])
            scripted.hold = 1

    asyncio.run(main())
    assert scripted.connections <= 3


def test_connections_of_tasks_are_looked_after(scripted: ScriptedServer) -> None:
    async def main() -> None:
        async with AsyncPool(scripted.address, 1, health=0.02, timeout=1.0) as pool:
            await pool.sync()
            await asyncio.to_thread(scripted.wait_for, lambda: len(scripted.received(m.GetServerInfo)) >= 3)
            scripted.faults.append(Fault.SILENCE)
            await asyncio.to_thread(scripted.wait_for, lambda: not scripted.open)
            await pool.sync()
            assert scripted.connections == 2
        await asyncio.to_thread(scripted.wait_for, lambda: not scripted.open)
        seen = len(scripted.requests)
        await asyncio.sleep(0.1)
        assert len(scripted.requests) == seen
        await pool.close()

    asyncio.run(main())


def test_a_pool_without_a_server() -> None:
    with (
        Pool("127.0.0.1:1", retry=RetryPolicy(attempts=2, base=0.0)) as pool,
        pytest.raises(ConnectionFailed),
    ):
        pool.sync()
