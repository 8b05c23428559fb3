"""Quotas: how much each tenant may store. The bytes of its topics, in segments and in tables, are summed up about once
a second. A tenant over its limit cannot append until retention or the deletion of a topic has made room. So a tenant
may exceed its limit by what it can append in that time.

`topics.create` enforces the limit on the number of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.broker.errors import QuotaReached
from penstock.broker.limits import Limits
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.state.state_log import StateLog

SECOND: Final = 1_000_000  # µs
SHARE: Final = 50  # at most 1/50 of the time is spent on summing up
LONGEST: Final = 60 * SECOND


class Quotas:
    def __init__(self, state_log: StateLog, limits: Limits, metrics: Metrics) -> None:
        self.over: set[str] = set()  # tenants that must not append; always the same set object
        self._state_log = state_log
        self._limit = limits.tenant_bytes
        self._metrics = metrics
        self._next = 0  # time of the next summation, µs

    def check_room(self, tenant: str) -> None:
        """Raise QuotaReached for a tenant that is over its limit. Hot paths first check whether `over` is empty."""
        if tenant in self.over:
            self._metrics.tenant_writes_refused += 1
            raise QuotaReached(
                f"Tenant '{tenant}' stores {self._limit} bytes, which is its limit: delete topics or shorten their "
                "retention"
            )

    def look(self, now: int, in_tables: Callable[[], Mapping[int, int]]) -> None:
        """Sum up the bytes of every tenant; called about once a second. `now` is the wall clock, in µs; `in_tables`
        returns the bytes of each topic's table, by topic id.
        """
        if not self._limit or 0 < self._next - now <= LONGEST:
            return
        started = self._metrics.timer()
        sizes = self._sizes(in_tables())
        self.over.clear()
        self.over.update(tenant for tenant, size in sizes.items() if size >= self._limit)
        took = (self._metrics.timer() - started) // 1000
        self._next = now + min(LONGEST, max(SECOND * 9 // 10, took * SHARE))

    def _sizes(self, in_tables: Mapping[int, int]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        in_journal = self._state_log.engine.usage()
        for topic in self._state_log.state.topics_by_id.values():
            size = in_journal.get(topic.id, 0) + in_tables.get(topic.id, 0)
            sizes[topic.scope.tenant] = sizes.get(topic.scope.tenant, 0) + size
        return sizes
