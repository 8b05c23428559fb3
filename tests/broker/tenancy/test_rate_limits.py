from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.errors import QuotaReached, TooFast
from penstock.broker.limits import Limits
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.tenancy.rate_limits import REMEMBERED, SECOND, Bucket, RateLimits

NOW = 1_700_000_000_000_000


def rate_limits(requests: float = 0, connections: int = 0) -> tuple[RateLimits, Metrics]:
    metrics = Metrics()
    return RateLimits(Limits(tenant_requests=requests, tenant_connections=connections), metrics), metrics


def admitted(rate_limits: RateLimits, tenant: str, now: int, cost: float = 1) -> bool:
    try:
        rate_limits.admit(tenant, now, cost)
    except TooFast:
        return False
    return True


def test_without_a_limit_nothing_is_remembered() -> None:
    free, _ = rate_limits()
    assert all(admitted(free, str(tenant), NOW) for tenant in range(100))
    assert not free._buckets


def test_as_many_at_once_as_in_a_second_and_then_at_that_pace() -> None:
    limited, metrics = rate_limits(requests=10)
    assert [admitted(limited, "a", NOW) for _ in range(12)] == [True] * 10 + [False] * 2
    assert not admitted(limited, "a", NOW + SECOND // 10 - 1)
    assert [admitted(limited, "a", NOW + SECOND // 10) for _ in range(2)] == [True, False]
    assert [admitted(limited, "a", NOW + 60 * SECOND) for _ in range(11)] == [True] * 10 + [False]
    assert metrics.tenant_requests_refused == 5


def test_tenants_do_not_notice_each_other() -> None:
    limited, _ = rate_limits(requests=1)
    assert admitted(limited, "a", NOW)
    assert not admitted(limited, "a", NOW)
    assert admitted(limited, "b", NOW)


def test_whoever_is_refused_is_told_when_to_come_again() -> None:
    limited, _ = rate_limits(requests=0.5)
    limited.admit("a", NOW)
    with pytest.raises(TooFast, match=r"more than 0\.5 requests.*again in 2\.000 s"):
        limited.admit("a", NOW)
    limited.admit("a", NOW + 2 * SECOND)


def test_what_costs_more_than_fits_is_paid_afterwards() -> None:
    limited, _ = rate_limits(requests=10)
    assert admitted(limited, "a", NOW, cost=30)
    assert not admitted(limited, "a", NOW + 2 * SECOND)
    assert admitted(limited, "a", NOW + 3 * SECOND, cost=10)


def test_a_clock_that_was_set_back_neither_gives_nor_locks() -> None:
    limited, _ = rate_limits(requests=2)
    assert [admitted(limited, "a", NOW) for _ in range(3)] == [True, True, False]
    assert not admitted(limited, "a", NOW - 3600 * SECOND)
    assert admitted(limited, "a", NOW - 3599 * SECOND)


def test_only_so_many_tenants_are_remembered() -> None:
    limited, _ = rate_limits(requests=1)
    for tenant in range(REMEMBERED + 5):
        limited.admit(str(tenant), NOW)
    assert len(limited._buckets) == REMEMBERED
    assert not admitted(limited, str(REMEMBERED + 4), NOW)


@given(st.floats(0.1, 1000), st.lists(st.integers(0, 3 * SECOND), max_size=200))
def test_never_more_than_the_rate_and_one_burst(rate: float, pauses: list[int]) -> None:
    bucket, now, taken = Bucket(rate, NOW), NOW, 0
    for pause in pauses:
        now += pause
        taken += bucket.take(now, 1)
    assert taken <= max(rate, 1) + rate * (now - NOW) / SECOND + 1e-6


def test_connections_of_a_tenant_are_counted() -> None:
    limited, metrics = rate_limits(connections=2)
    limited.enter("a")
    limited.enter("a")
    limited.enter("b")
    with pytest.raises(QuotaReached, match="2 connections"):
        limited.enter("a")
    assert (limited.connections("a"), limited.connections("b")) == (2, 1)
    assert metrics.tenant_connections_refused == 1
    limited.leave("a")
    limited.enter("a")
    for tenant in ("a", "a", "b"):
        limited.leave(tenant)
    assert not limited._connections  # nothing is kept of who is gone
    limited.leave("a")
    assert limited.connections("a") == 0


def test_without_a_limit_connections_are_counted_too() -> None:
    free, _ = rate_limits()
    for _ in range(5):
        free.enter("a")
    assert free.connections("a") == 5


def test_a_tenant_has_its_share_of_all_connections_where_no_number_limits_them() -> None:
    metrics = rate_limits()[1]
    limits = RateLimits(Limits(connections=8, tenant_connections=1), metrics)
    for _ in range(4):
        limits.enter("greedy", many=True)
    with pytest.raises(QuotaReached):
        limits.enter("greedy", many=True)
    limits.enter("modest")
    with pytest.raises(QuotaReached):
        limits.enter("modest")
    limits.enter("modest", many=True)
    limits.leave("greedy")
    limits.leave("greedy")
    limits.enter("greedy", many=True)
