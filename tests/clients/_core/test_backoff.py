"""Backoff: as many attempts as the policy says, with its pauses between them."""

from __future__ import annotations

import asyncio

from penstock.clients._core.backoff import AsyncBackoff
from penstock.retry import RetryPolicy


def test_pauses_follow_the_policy_until_it_gives_up() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def main() -> list[bool]:
        backoff = AsyncBackoff(RetryPolicy(attempts=4, base=1.0, cap=3.0, random=lambda: 1.0), sleep)
        retried = [await backoff.retry() for _ in range(4)]
        assert backoff.failures == 4
        return retried

    assert asyncio.run(main()) == [True, True, True, False]
    assert pauses == [1.0, 2.0, 3.0]
