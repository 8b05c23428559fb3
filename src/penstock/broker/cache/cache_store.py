"""A key-value store with deadlines and LRU eviction.

Values are in named caches; all caches of a store share its memory limit. When it is reached, a tenant that has more
than an equal part of it evicts its own least recently used value; if it has less, the tenant with the most evicts
instead. Time is passed in, in µs of a monotonic clock. A value expires exactly at its deadline, whether or not `due`
has found it yet. Independent of clients, logs and access.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import Final, NamedTuple

from penstock.broker.errors import InvalidArgument
from penstock.broker.names import Scope
from penstock.broker.runtime.timer_wheel import NOWHERE, TimerWheel

ENTRY_BYTES: Final = 512  # overhead of a value, in addition to itself and its key, here and in the state
CACHE_BYTES: Final = 1_024  # overhead of a cache
NEVER: Final = 1 << 62  # a deadline, µs
LONGEST: Final = 1 << 60  # µs: beyond any clock, and deadlines this late still fit into 64 bits

_MIN, _MAX = -(1 << 63), (1 << 63) - 1
_DIGITS: Final = len(str(_MIN))
_NOTHING: Final[Sequence[Entry]] = ()


class CacheName(NamedTuple):
    scope: Scope
    name: str


@dataclass(frozen=True, slots=True)
class CachePolicy:
    max_bytes: int = 256 << 20  # of all caches that are not journalled
    max_entries: int = 1_000_000  # of these; the same limit applies to the journalled ones
    value_bytes: int = 1 << 20
    key_bytes: int = 4 << 10
    journalled: tuple[str, ...] = ()  # patterns of TENANT/NAMESPACE/CACHE
    journalled_bytes: int = 16 << 20  # of all caches that survive a restart

    def is_journalled(self, cache: CacheName) -> bool:
        parts = (*cache.scope, cache.name)
        return any(all(map(fnmatchcase, parts, pattern.split("/", 2))) for pattern in self.journalled)


class TenantEntries:
    """All values of one tenant."""

    __slots__ = ("bytes", "name", "order")

    def __init__(self, name: str) -> None:
        self.name = name
        self.bytes = 0
        self.order: OrderedDict[Entry, None] = OrderedDict()  # least recently used first


class Cache:
    """The values of one cache. It has at least one value, unless it is `dropped`."""

    __slots__ = ("dropped", "entries", "name", "owner")

    def __init__(self, name: CacheName, owner: TenantEntries) -> None:
        self.name = name
        self.owner = owner
        self.entries: dict[str, Entry] = {}
        self.dropped = False  # as a whole; its remaining entries can no longer be found


class Entry:
    """A value and its key."""

    __slots__ = ("cache", "deadline", "key", "size", "slot", "value")

    def __init__(self, cache: Cache, key: str) -> None:
        self.cache = cache
        self.key = key
        self.value = b""
        self.size = 0
        self.deadline = NEVER
        self.slot = NOWHERE


class CacheStore:
    def __init__(self, max_bytes: int, max_entries: int) -> None:
        self.bytes = 0
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._count = 0
        self._caches: dict[CacheName, Cache] = {}
        self._tenants: dict[str, TenantEntries] = {}  # tenants with at least one value
        self._wheel: TimerWheel[Entry] = TimerWheel()
        self._dropped: list[Cache] = []

    def __len__(self) -> int:
        return self._count

    def counts(self) -> Iterator[tuple[CacheName, int]]:
        """Non-empty caches and their number of keys, which may include expired ones."""
        for name, cache in self._caches.items():
            if cache.entries:
                yield name, len(cache.entries)

    def keys(self, name: CacheName) -> list[str]:
        """All keys of a cache, unordered; some may have expired."""
        cache = self._caches.get(name)
        return [] if cache is None else list(cache.entries)

    def find(self, name: CacheName, key: str, now: int) -> Entry | None:
        """The entry, unless it has expired; it becomes the most recently used."""
        cache = self._caches.get(name)
        entry = None if cache is None else cache.entries.get(key)
        if entry is None or entry.deadline <= now:
            return None
        entry.cache.owner.order.move_to_end(entry)
        return entry

    def held(self, name: CacheName, key: str) -> Entry | None:
        """The entry, expired or not."""
        cache = self._caches.get(name)
        return None if cache is None else cache.entries.get(key)

    def victims(self, name: CacheName, key: str, value: bytes) -> Sequence[Entry]:
        """The entries to evict before this can be set. Raises InvalidArgument if the value exceeds the store's
        limit.
        """
        cache = self._caches.get(name)
        old = None if cache is None else cache.entries.get(key)
        size = _size(key, value) + (CACHE_BYTES if cache is None else 0)
        if size + (0 if cache is None else CACHE_BYTES) > self._max_bytes:
            raise InvalidArgument(f"A value of {len(value)} bytes is larger than all the room of the cache")
        if old is not None:
            old.cache.owner.order.move_to_end(old)
            return self._oldest(name.scope.tenant, size - old.size, 0, kept=old)
        return self._oldest(name.scope.tenant, size, 1)

    def excess(self, max_count: int) -> Sequence[Entry]:
        """At most `max_count` entries to evict because the store is over its limits."""
        return self._oldest(None, 0, 0, max_count=max_count)

    def _oldest(
        self,
        tenant: str | None,
        bytes_more: int,
        entries_more: int,
        *,
        kept: Entry | None = None,
        max_count: int | None = None,
    ) -> Sequence[Entry]:
        """The entries to evict so that the tenant can add this much; never `kept`."""
        size, count = self.bytes + bytes_more - self._max_bytes, self._count + entries_more - self._max_entries
        if size <= 0 and count <= 0:
            return _NOTHING
        found: list[Entry] = []
        mine = _Payer(self._tenants.get(tenant or "") or TenantEntries(""))
        mine.bytes += bytes_more
        mine.count += entries_more
        others = [entries for name, entries in self._tenants.items() if name != tenant]
        tenants = max(1, len(others) + (tenant is not None))
        equal_bytes, equal_count = self._max_bytes // tenants, self._max_entries // tenants
        payers: list[_Payer] = []  # created on demand: there may be many tenants
        while (size > 0 or count > 0) and len(found) != max_count:
            payer = mine
            if not (mine.bytes > equal_bytes if size > 0 else mine.count > equal_count):
                payers = payers or [mine, *map(_Payer, others)]
                payer = max(payers, key=_Payer.by_bytes if size > 0 else _Payer.by_count)
            if payer.count < 0:
                break  # nothing left to evict
            if (entry := payer.pay(kept)) is not None:
                found.append(entry)
                size -= entry.size
                count -= 1
        return found

    def set(self, name: CacheName, key: str, value: bytes, deadline: int, now: int) -> None:
        """Set a value until the deadline, replacing any other; it becomes the most recently used. There must be room,
        see `victims`.
        """
        cache = self._caches.get(name)
        if cache is None:
            owner = self._tenants.get(name.scope.tenant)
            if owner is None:
                owner = self._tenants[name.scope.tenant] = TenantEntries(name.scope.tenant)
            cache = self._caches[name] = Cache(name, owner)
            self._add_bytes(owner, CACHE_BYTES)
        self._assign(cache, cache.entries.get(key), key, value, _size(key, value), deadline, now)

    def set_if_room(self, name: CacheName, key: str, value: bytes, deadline: int, now: int) -> bool:
        """`set`, if there is room without evicting anything and the cache is not empty; otherwise False, and nothing
        has changed. For most values this is all."""
        cache = self._caches.get(name)
        if cache is None:
            return False
        entry = cache.entries.get(key)
        size = _size(key, value)
        more, count = (size, 1) if entry is None else (size - entry.size, 0)
        if self.bytes + more > self._max_bytes or self._count + count > self._max_entries:
            return False
        self._assign(cache, entry, key, value, size, deadline, now)
        return True

    def _assign(
        self, cache: Cache, entry: Entry | None, key: str, value: bytes, size: int, deadline: int, now: int
    ) -> None:
        """Set a value of this size, in the entry if there is one."""
        if entry is None:
            entry = cache.entries[key] = Entry(cache, key)
            cache.owner.order[entry] = None
            self._count += 1
        else:
            cache.owner.order.move_to_end(entry)
        self._add_bytes(cache.owner, size - entry.size)
        entry.size = size
        entry.value = value
        if entry.deadline != deadline:
            self._wheel.take(entry)
            entry.deadline = deadline
            if deadline < NEVER:
                self._wheel.put(entry, now)

    def remove(self, entry: Entry) -> None:
        """Remove an entry, which must exist."""
        cache = entry.cache
        owner = cache.owner
        del cache.entries[entry.key]
        del owner.order[entry]
        self._count -= 1
        self._wheel.take(entry)
        self._add_bytes(owner, -entry.size)
        if not cache.entries:
            self._add_bytes(owner, -CACHE_BYTES)
            if not cache.dropped:
                del self._caches[cache.name]
        if not owner.order:
            del self._tenants[owner.name]

    def _add_bytes(self, owner: TenantEntries, size: int) -> None:
        self.bytes += size
        owner.bytes += size

    def due(self, now: int, max_count: int) -> Sequence[Entry]:
        """Some of the expired entries, to be removed; see `TimerWheel.due`."""
        return self._wheel.due(now, max_count)

    def drop(self, tenant: str) -> None:
        """Empty all caches of a tenant immediately. Their memory is freed by later calls of `purge`."""
        for name in [name for name in self._caches if name.scope.tenant == tenant]:
            cache = self._caches.pop(name)
            cache.dropped = True
            self._dropped.append(cache)

    def purge(self, max_count: int) -> None:
        """Remove at most `max_count` entries of dropped caches."""
        while self._dropped and max_count > 0:
            entries = self._dropped[-1].entries
            for entry in list(islice(entries.values(), max_count)):
                self.remove(entry)
                max_count -= 1
            if not entries:
                self._dropped.pop()

    def clear(self) -> None:
        self.bytes = self._count = 0
        self._caches, self._tenants, self._wheel, self._dropped = {}, {}, TimerWheel(), []


class _Payer:
    """A tenant during the choice of victims: what it would have left."""

    __slots__ = ("_entries", "bytes", "count")

    def __init__(self, tenant: TenantEntries) -> None:
        self.bytes = tenant.bytes
        self.count = len(tenant.order)
        self._entries = iter(tenant.order)

    def by_bytes(self) -> int:
        return self.bytes

    def by_count(self) -> int:
        return self.count

    def pay(self, kept: Entry | None) -> Entry | None:
        """The tenant's next entry to evict; None if it has no more."""
        entry = next(self._entries, None)
        if entry is kept or entry is None:  # `kept` was moved to the end
            self.bytes = self.count = -1  # not chosen again as long as another tenant has entries
            return None
        self.bytes -= entry.size
        self.count -= 1
        return entry


def _size(key: str, value: bytes) -> int:
    return len(value) + (len(key) if key.isascii() else 4 * len(key)) + ENTRY_BYTES


def check_sizes(policy: CachePolicy, key: str, value: bytes | None = None) -> None:
    """Raises InvalidArgument for a key or a value that is too large or cannot be stored."""
    try:
        length = len(key) if key.isascii() else len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument("The key has half of a surrogate pair, which cannot be stored") from error
    if length > policy.key_bytes:
        raise InvalidArgument(f"The key is longer than {policy.key_bytes} bytes (cache.key_bytes)")
    if value is not None and len(value) > policy.value_bytes:
        raise InvalidArgument(
            f"The value of {len(value)} bytes is larger than the limit of {policy.value_bytes} (cache.value_bytes)"
        )


def deadline(now: int, ttl_ms: int | None) -> int:
    """The deadline of a value that is set now. Raises InvalidArgument."""
    if ttl_ms is None:
        return NEVER
    if ttl_ms < 0:
        raise InvalidArgument(f"ttl_ms is {ttl_ms}; 0 or more are allowed, or none at all for a value that stays")
    return now + min(ttl_ms * 1000, LONGEST)


def incremented(value: bytes | None, by: int) -> int:
    """The decimal number in `value` (None: 0) plus `by`. Raises InvalidArgument."""
    digits = b"0" if value is None else value
    if len(digits) > _DIGITS or not digits.removeprefix(b"-").isdigit():
        raise InvalidArgument("The value is not a number in decimal digits, so it cannot be incremented")
    number = int(digits) + by
    if not _MIN <= int(digits) <= _MAX or not _MIN <= number <= _MAX:
        raise InvalidArgument("The number would not fit into 64 bits")
    return number
