"""All caches of a broker: key-value pairs with an optional TTL.

Most caches are in memory only. Those that the operator has configured as journalled survive a restart: every change is
an event of the log. Their values are part of the state and also in a `CacheStore`, which keeps the LRU order and the
deadlines by the monotonic clock. The two kinds have separate memory limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Final, NamedTuple, Protocol

from penstock.broker.cache import cache_store as rules
from penstock.broker.cache.cache_state import remaining
from penstock.broker.cache.cache_store import NEVER, CacheName, CachePolicy, CacheStore, Entry
from penstock.broker.names import Scope, check_cache, scope
from penstock.broker.runtime.clock import Clock
from penstock.broker.runtime.executor import Deferred
from penstock.broker.runtime.metrics import CacheFigures, Metrics
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.state.events import CacheRemoved, CacheSet
from penstock.broker.state.state_log import StateLog
from penstock.broker.tenancy.quotas import Quotas
from penstock.log.engine import CommitGroup
from penstock.log.errors import LogError

SWEEP_ENTRIES: Final = 1_000  # that one sweep examines, of each kind: some 3 ms
REMOVED_KEYS: Final = 500  # of one event
REMOVED_BYTES: Final = 32 << 10  # approximate limit for all of them
NAMES: Final = 10_000  # validated names that are cached
FEW_KEYS: Final = 1_000  # that are sorted on the event loop

SETTLED: Final = CommitGroup()
"""A group that is already committed: replies about caches in memory, which are not durable, wait for nothing."""
SETTLED.finish()


class CachedKey(NamedTuple):
    key: str
    bytes: int  # of its value
    expires: int | None  # µs since 1970; None: it does not expire


class KeyPage(NamedTuple):
    keys: list[CachedKey]
    next: str | None  # pass as `after` for the next page; None: this is the last


class CacheBackend(Protocol):
    store: CacheStore

    def settled(self) -> CommitGroup:
        """The commit group that a reply containing a value must wait for."""

    def set(self, cache: CacheName, key: str, value: bytes, deadline: int, now: int) -> CommitGroup: ...

    def remove(self, entries: Iterable[Entry], *, shown: bool = True) -> CommitGroup:
        """`shown`: whether a client will be told of the removal."""


class CacheService:
    """`monotonic` decides when a value expires; `clock` is only stored, for use after a restart."""

    def __init__(
        self,
        state_log: StateLog,
        access: Access,
        policy: CachePolicy,
        quotas: Quotas,
        metrics: Metrics,
        clock: Clock,
        monotonic: Clock,
    ) -> None:
        self.policy = policy
        self._state_log = state_log
        self._access = access
        self._metrics = metrics
        self._clock = clock
        self._monotonic = monotonic
        self._memory = _MemoryBackend(policy, metrics)
        self._journal = _JournalBackend(state_log, policy, quotas, metrics, clock, monotonic)
        self._names: dict[tuple[str, str, str], CacheName] = {}
        self._journalled: dict[CacheName, bool] = {}

    def name(self, tenant: str, namespace: str, cache: str) -> CacheName:
        """The validated name of a cache, which may be empty. Raises InvalidName."""
        key = (tenant, namespace, cache)
        found = self._names.get(key)
        if found is None:
            check_cache(cache)
            found = CacheName(scope(tenant, namespace), cache)
            if len(self._names) >= NAMES:
                self._names.clear()
            self._names[key] = found
        return found

    # -- for clients; names come from `name`. Changes are durable once the group is committed

    def get(self, identity: Identity, cache: CacheName, key: str) -> bytes | None:
        """The value, or None. The reply must wait for the group returned by `settled`."""
        self._access.require(identity, Permission.CACHE_READ, *cache)
        metrics = self._metrics
        metrics.cache_gets += 1
        entry = self._backend(cache).store.find(cache, key, self._monotonic())
        if entry is None:
            return None
        metrics.cache_hits += 1
        return entry.value

    def list(self, identity: Identity, scope: Scope) -> Sequence[tuple[CacheName, int, bool]]:
        """Non-empty caches of the scope that this identity may read: name, number of keys, and whether it is
        journalled.
        """
        self._access.require_any(identity, Permission.CACHE_READ, scope)
        found = [
            (name, count, backend is self._journal)
            for backend in (self._memory, self._journal)
            for name, count in backend.store.counts()
            if name.scope == scope and self._access.allows(identity, Permission.CACHE_READ, scope, name.name)
        ]
        return sorted(found)

    def keys(
        self, identity: Identity, cache: CacheName, limit: int, after: str = ""
    ) -> Deferred[Sequence[str], KeyPage]:
        """Keys of a cache after `after`, in order, with the sizes of their values and their expiry."""
        self._access.require(identity, Permission.CACHE_READ, *cache)
        store = self._backend(cache).store
        known = store.keys(cache)  # a cheap copy: sorting happens on a thread

        def find() -> Sequence[str]:
            return nsmallest(limit + 1, (key for key in known if key > after) if after else known)

        def conclude(found: Sequence[str]) -> KeyPage:
            now, wall = self._monotonic(), self._clock()
            views = []
            for key in found[:limit]:
                entry = store.held(cache, key)
                if entry is not None and entry.deadline > now:
                    ends = None if entry.deadline == NEVER else wall + entry.deadline - now
                    views.append(CachedKey(key, len(entry.value), ends))
            return KeyPage(views, found[limit - 1] if len(found) > limit else None)

        return Deferred(find, conclude, ready=len(known) <= FEW_KEYS)

    def settled(self, cache: CacheName) -> CommitGroup:
        """The commit group that a reply containing a value of this cache must wait for."""
        return self._backend(cache).settled()

    def put(self, identity: Identity, cache: CacheName, key: str, value: bytes, ttl_ms: int | None) -> CommitGroup:
        """Set a value; replaces the previous value and its TTL."""
        self._access.require(identity, Permission.CACHE_WRITE, *cache)
        rules.check_sizes(self.policy, key, value)
        now = self._monotonic()
        return self._set(self._backend(cache), cache, key, value, rules.deadline(now, ttl_ms), now)

    def delete(self, identity: Identity, cache: CacheName, key: str) -> tuple[bool, CommitGroup]:
        """Remove a key: True if there was a value."""
        self._access.require(identity, Permission.CACHE_WRITE, *cache)
        backend = self._backend(cache)
        entry = backend.store.find(cache, key, self._monotonic())
        if entry is None:
            return False, backend.settled()
        return True, backend.remove((entry,))

    def compare_and_set(
        self,
        identity: Identity,
        cache: CacheName,
        key: str,
        expected: bytes | None,
        value: bytes,
        ttl_ms: int | None,
    ) -> tuple[bool, bytes | None, CommitGroup]:
        """Put the value if the current one equals `expected` (None: if there is no value). Returns whether it was put,
        and the current value.
        """
        self._require_both(identity, cache)
        rules.check_sizes(self.policy, key, value)
        backend, now = self._backend(cache), self._monotonic()
        entry = backend.store.find(cache, key, now)
        present = None if entry is None else entry.value
        if present != expected:
            return False, present, backend.settled()
        end = rules.deadline(now, ttl_ms)
        group = self._set(backend, cache, key, value, end, now)
        return True, value if end > now else None, group

    def increment(
        self, identity: Identity, cache: CacheName, key: str, by: int, ttl_ms: int | None
    ) -> tuple[int, CommitGroup]:
        """Add to a number, which keeps its deadline; a missing one starts at 0 and expires after `ttl_ms`."""
        self._require_both(identity, cache)
        backend, now = self._backend(cache), self._monotonic()
        entry = backend.store.find(cache, key, now)
        number = rules.incremented(None if entry is None else entry.value, by)
        end = rules.deadline(now, ttl_ms) if entry is None else entry.deadline
        value = b"%d" % number
        rules.check_sizes(self.policy, key, value)
        return number, self._set(backend, cache, key, value, end, now)

    # -- for the broker

    def rebuilt(self) -> None:
        """The state was reloaded from the log."""
        self._journal.rebuilt()

    def sweep(self) -> None:
        """Free the memory of expired values. Called a few times a second; each call does a bounded amount of work."""
        now = self._monotonic()
        self._memory.sweep(now)
        self._journal.sweep(now)

    def forget(self, tenant: str) -> None:
        """The tenant was deleted, and with it the state of its journalled caches."""
        self._memory.store.drop(tenant)
        self._journal.store.drop(tenant)

    def figures(self) -> CacheFigures:
        memory, journal = self._memory.store, self._journal.store
        return CacheFigures(len(memory) + len(journal), memory.bytes, journal.bytes)

    # -- internals

    def _require_both(self, identity: Identity, cache: CacheName) -> None:
        """For operations that change a value and return it."""
        self._access.require(identity, Permission.CACHE_READ, *cache)
        self._access.require(identity, Permission.CACHE_WRITE, *cache)

    def _backend(self, cache: CacheName) -> CacheBackend:
        if not self.policy.journalled:
            return self._memory
        journalled = self._journalled.get(cache)
        if journalled is None:
            journalled = self.policy.is_journalled(cache)
            if len(self._journalled) >= NAMES:
                self._journalled.clear()
            self._journalled[cache] = journalled
        if not journalled:
            return self._memory
        self._state_log.current()  # removes values that could not be committed from the store
        return self._journal

    def _set(
        self, backend: CacheBackend, cache: CacheName, key: str, value: bytes, deadline: int, now: int
    ) -> CommitGroup:
        self._metrics.cache_puts += 1
        if deadline > now:
            return backend.set(cache, key, value, deadline, now)
        held = backend.store.held(cache, key)
        return backend.settled() if held is None else backend.remove((held,))


class _MemoryBackend:
    """Caches that are lost when the process ends."""

    def __init__(self, policy: CachePolicy, metrics: Metrics) -> None:
        self.store = CacheStore(policy.max_bytes, policy.max_entries)
        self._metrics = metrics

    def settled(self) -> CommitGroup:
        return SETTLED

    def set(self, cache: CacheName, key: str, value: bytes, deadline: int, now: int) -> CommitGroup:
        store = self.store
        if store.set_if_room(cache, key, value, deadline, now):
            return SETTLED
        victims = store.victims(cache, key, value)
        if victims:
            self._metrics.cache_evicted += len(victims)
            self.remove(victims)
        store.set(cache, key, value, deadline, now)
        return SETTLED

    def remove(self, entries: Iterable[Entry], *, shown: bool = True) -> CommitGroup:  # noqa: ARG002
        for entry in entries:
            self.store.remove(entry)
        return SETTLED

    def sweep(self, now: int) -> None:
        self.store.purge(SWEEP_ENTRIES)
        due = self.store.due(now, SWEEP_ENTRIES)
        self._metrics.cache_expired += len(due)
        self.remove(due)


class _JournalBackend:
    """Caches that survive a restart: the store shares its values with the state."""

    def __init__(
        self,
        state_log: StateLog,
        policy: CachePolicy,
        quotas: Quotas,
        metrics: Metrics,
        clock: Clock,
        monotonic: Clock,
    ) -> None:
        self.store = CacheStore(policy.journalled_bytes, policy.max_entries)
        self._state_log = state_log
        self._policy = policy
        self._quotas = quotas
        self._metrics = metrics
        self._clock = clock
        self._monotonic = monotonic
        self._left: list[CacheName] = []  # caches in the state that are no longer configured as journalled
        self.rebuilt()

    def rebuilt(self) -> None:
        """Reload the store: at the start, and after a change could not be committed. From now on the monotonic clock
        decides when values expire.
        """
        self.store.clear()
        self._left = []
        found = []
        for name, values in self._state_log.state.cached.items():
            if self._policy.is_journalled(name):
                found += [(kept.at, name, key, kept) for key, kept in values.items()]
            else:
                self._left.append(name)
        now, wall = self._monotonic(), self._clock()
        for _, name, key, kept in sorted(found, key=lambda item: item[0]):
            left = remaining(kept, wall)
            self.store.set(name, key, kept.value, NEVER if left is None else now + left, now)

    def settled(self) -> CommitGroup:
        return self._state_log.pending_commit or SETTLED

    def set(self, cache: CacheName, key: str, value: bytes, deadline: int, now: int) -> CommitGroup:
        if self._quotas.over:
            self._quotas.check_room(cache.scope.tenant)
        victims = self.store.victims(cache, key, value)
        if victims:
            self.remove(victims)
            self._metrics.cache_evicted += len(victims)
        ttl = None if deadline == NEVER else deadline - now
        group = self._state_log.commit((CacheSet(*cache.scope, cache.name, key, value, self._clock(), ttl),))
        self.store.set(cache, key, value, deadline, now)
        return group

    def remove(self, entries: Iterable[Entry], *, shown: bool = True) -> CommitGroup:
        group = SETTLED
        for cache, keys in _by_cache(entries):
            if not cache.dropped:  # else the state has none of them; there may be a new cache of this name
                event = CacheRemoved(*cache.name.scope, cache.name.name, keys)
                group = self._state_log.append((), (event,), shown=shown).group
            for key in keys:
                self.store.remove(cache.entries[key])
        return group

    def sweep(self, now: int) -> None:
        self._state_log.current()
        store, metrics = self.store, self._metrics
        store.purge(SWEEP_ENTRIES)
        try:
            if due := store.due(now, SWEEP_ENTRIES):
                self.remove(due, shown=False)
                metrics.cache_expired += len(due)
            if excess := store.excess(SWEEP_ENTRIES):  # the operator has lowered the limit
                self.remove(excess)
                metrics.cache_evicted += len(excess)
            if self._left:
                self._forget_some()
        except LogError:
            return  # such as a full disk: expired values stay hidden, and the next sweep retries

    def _forget_some(self) -> None:
        """Remove values of caches that are no longer journalled: they would be stale if the cache were journalled
        again.
        """
        name = self._left[-1]
        keys = list(islice(self._state_log.state.cached.get(name, ()), REMOVED_KEYS))
        if keys:
            some = next(_key_batches(keys))
            self._state_log.append((), (CacheRemoved(*name.scope, name.name, some),), shown=False)
        else:
            self._left.pop()


def _by_cache(entries: Iterable[Entry]) -> Iterator[tuple[rules.Cache, list[str]]]:
    """The keys to remove by cache, in batches: one event each."""
    found: dict[rules.Cache, list[str]] = {}
    for entry in entries:
        found.setdefault(entry.cache, []).append(entry.key)
    for cache, keys in found.items():
        for some in _key_batches(keys):
            yield cache, some


def _key_batches(keys: list[str]) -> Iterator[list[str]]:
    """Batches of keys that are small enough for one event."""
    start = size = 0
    for at, key in enumerate(keys):
        length = 4 * len(key)
        if at > start and (size + length > REMOVED_BYTES or at - start == REMOVED_KEYS):
            yield keys[start:at]
            start, size = at, 0
        size += length
    yield keys[start:]
