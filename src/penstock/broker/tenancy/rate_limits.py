"""Rate limits per tenant: requests per second, and concurrent connections.

For doors whose clients name their tenant. A tenant that exceeds its limit is refused, without effect on the others.
Kept in memory only; a restart begins with full buckets. Time is passed in.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.errors import QuotaReached, TooFast
from penstock.broker.limits import Limits
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.tenancy.fair_share import allowance

REMEMBERED: Final = 10_000  # tenants; one that was evicted begins with a full bucket again
SECOND: Final = 1_000_000  # µs


class Bucket:
    """A token bucket. A cost larger than the bucket is admitted when the bucket is full; the balance becomes negative,
    and later requests wait until it has recovered.
    """

    __slots__ = ("_at", "_rate", "_size", "_tokens")

    def __init__(self, rate: float, now: int) -> None:
        """`rate` is tokens per second, and also the size of the bucket (at least 1). `now` is in µs, as below."""
        self._rate = rate / SECOND
        self._size = self._tokens = max(rate, 1.0)
        self._at = now

    def take(self, now: int, cost: float) -> bool:
        """Spend tokens if there are enough; returns whether there were."""
        tokens = self._tokens
        if now > self._at:
            tokens = min(self._size, tokens + (now - self._at) * self._rate)
        self._at = now  # even if the clock was set back
        enough = tokens >= min(cost, self._size)
        self._tokens = tokens - cost if enough else tokens
        return enough

    def wait(self, cost: float) -> float:
        """Seconds from the last attempt until there will be enough tokens."""
        return max(0.0, min(cost, self._size) - self._tokens) / self._rate / SECOND


class RateLimits:
    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._rate = limits.tenant_requests
        self._max_connections = limits.tenant_connections
        self._limits = limits
        self._total = 0  # open connections of all tenants
        self._metrics = metrics
        self._buckets: dict[str, Bucket] = {}
        self._connections: dict[str, int] = {}

    def admit(self, tenant: str, now: int, cost: float = 1) -> None:
        """Admit a request of the tenant at `now` (µs). Raises TooFast."""
        if not self._rate:
            return
        bucket = self._buckets.get(tenant)
        if bucket is None:
            if len(self._buckets) >= REMEMBERED:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[tenant] = Bucket(self._rate, now)
        if not bucket.take(now, cost):
            self._metrics.tenant_requests_refused += 1
            raise TooFast(
                f"Tenant '{tenant}' sends more than {self._rate:g} requests in a second, which is its limit: "
                f"try again in {bucket.wait(cost):.3f} s"
            )

    def enter(self, tenant: str, *, many: bool = False) -> None:
        """Count a connection of the tenant, until `leave`. With `many`, only the tenant's share limits their number.
        Raises QuotaReached.
        """
        count, limits = self._connections.get(tenant, 0), self._limits
        share = allowance(limits.connections, self._total - count, limits.tenant_share)
        if count >= share or (not many and self._max_connections and count >= self._max_connections):
            self._metrics.tenant_connections_refused += 1
            raise QuotaReached(
                f"Tenant '{tenant}' has {count} connections, which is its limit: use fewer, or close some"
            )
        self._connections[tenant] = count + 1
        self._total += 1

    def leave(self, tenant: str) -> None:
        """A connection that was counted by `enter` has closed."""
        count = self._connections.get(tenant, 0)
        self._total -= min(count, 1)
        if count > 1:
            self._connections[tenant] = count - 1
        else:
            self._connections.pop(tenant, None)

    def connections(self, tenant: str) -> int:
        return self._connections.get(tenant, 0)
