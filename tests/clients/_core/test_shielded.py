"""Shielded tasks: a cancelled caller does not end them, and the next caller joins."""

from __future__ import annotations

import asyncio

import pytest

from penstock.clients._core.shielded import ShieldedTask


def test_the_next_caller_waits_for_the_same_run() -> None:
    async def main() -> None:
        started, go = 0, asyncio.Event()

        async def work() -> None:
            nonlocal started
            started += 1
            await go.wait()

        shielded = ShieldedTask(work)
        assert not shielded.running
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(shielded.run(), 0.01)
        assert shielded.running
        go.set()
        await shielded.run()
        assert started == 1
        assert not shielded.running
        await shielded.run()
        assert started == 2

    asyncio.run(main())


def test_its_exception_reaches_the_caller_and_it_can_be_run_again() -> None:
    async def main() -> None:
        async def fail() -> None:
            raise ZeroDivisionError

        shielded = ShieldedTask(fail)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await shielded.run()

    asyncio.run(main())


def test_it_can_be_cancelled() -> None:
    async def main() -> None:
        shielded = ShieldedTask(lambda: asyncio.sleep(100))
        caller = asyncio.create_task(shielded.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await shielded.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller

    asyncio.run(main())
