"""The state of journalled caches: the values, when they were set, and their TTL.

Expiry is not decided here. A running broker uses a monotonic clock for it; only after a restart is the wall clock used,
once, to determine the elapsed time (`remaining`).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from penstock.broker.cache.cache_store import CacheName
from penstock.broker.names import Scope
from penstock.broker.state.events import CacheRemoved, CacheSet


class StoredValue(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stored value. Part of snapshots: fields may be added at the end with a default."""

    value: bytes
    at: int  # µs since 1970
    ttl: int | None  # µs


CacheState: TypeAlias = dict[CacheName, dict[str, StoredValue]]

Stored: TypeAlias = list[tuple[str, str, str, dict[str, StoredValue]]]
"""The same in a snapshot. The inner dictionary is encoded directly: there may be a hundred thousand values."""


def apply_cached(cached: CacheState, event: CacheSet | CacheRemoved) -> None:
    name = CacheName(Scope(event.tenant, event.namespace), event.cache)
    if isinstance(event, CacheSet):
        cached.setdefault(name, {})[event.key] = StoredValue(event.value, event.at, event.ttl)
        return
    values = cached.get(name, {})
    for key in event.keys:
        values.pop(key, None)
    if not values:
        cached.pop(name, None)


def forget_cached(cached: CacheState, tenant: str) -> None:
    for name in [name for name in cached if name.scope.tenant == tenant]:
        del cached[name]


def stored(cached: CacheState) -> Stored:
    return [(*name.scope, name.name, values) for name, values in cached.items()]


def restored(values: Stored) -> CacheState:
    return {CacheName(Scope(tenant, namespace), cache): kept for tenant, namespace, cache, kept in values}


def remaining(kept: StoredValue, now: int) -> int | None:
    """The remaining lifetime in µs at wall clock time `now`; None: unlimited. If the clock was set back, it is still
    never longer than the TTL.
    """
    return None if kept.ttl is None else min(kept.ttl, kept.at + kept.ttl - now)
