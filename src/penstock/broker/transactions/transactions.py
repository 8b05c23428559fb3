"""All open transactions of a broker: beginning one, adding records to it, committing or dropping it.

A commit is one append of all its records, of the topics created for them, and of the event that marks it as committed:
there is no intermediate state. See `transaction` for what is held until then.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple

from penstock.broker.errors import (
    LimitReached,
    PartitionNotFound,
    TopicNotFound,
    TransactionNotActive,
    TransactionNotFound,
    TransactionTooLarge,
)
from penstock.broker.limits import Limits
from penstock.broker.names import Scope
from penstock.broker.produce.partitioning import ANY, Partitioner
from penstock.broker.produce.validation import RecordValidator
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.security.audit import Audit
from penstock.broker.state.events import TopicCreated, TransactionCommitted
from penstock.broker.state.state import Topic, topic_of
from penstock.broker.state.state_log import StateLog
from penstock.broker.tenancy.fair_share import check_room
from penstock.broker.topics import topic_rules
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.broker.transactions.transaction import (
    ACTIVE,
    COMMITTED,
    COMMITTING,
    ROLLED_BACK,
    TIMED_OUT,
    TOKEN_BYTES,
    Transaction,
    belongs,
    new_id,
)
from penstock.log.batch import Headers
from penstock.log.engine import CommitGroup, GroupState, Records

REMEMBERED: Final = 10_000  # ids of dropped transactions, to report why they ended
_DEFAULT_SETTINGS: Final = TopicSettings()


class _OpenTotals(NamedTuple):
    """Totals of the open transactions of a tenant."""

    open: int
    size: int  # bytes


_NONE_OPEN: Final = _OpenTotals(0, 0)


class Committed(NamedTuple):
    """The result of a commit, once its group is committed."""

    records: int
    dead_lettered: int  # how many of the records became dead letters
    timestamp: int  # µs since 1970
    repeated: bool = False  # already committed: `records` and `dead_lettered` were in the first reply


class OpenTransaction(NamedTuple):
    """An open transaction, for administrators."""

    id: str
    state: str
    began: int  # µs since 1970
    records: int
    size: int  # bytes
    topics: list[str]


class Transactions:
    """A transaction belongs to the identity that began it, on any of its connections. It ends with its `owner`, an
    object that represents the connection on which it was begun.
    """

    def __init__(
        self,
        state_log: StateLog,
        access: Access,
        validator: RecordValidator,
        partitioner: Partitioner,
        limits: Limits,
        metrics: Metrics,
        clock: Callable[[], int],
        audit: Audit,
        *,
        auto_create_topics: bool = True,
        token: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._audit = audit
        self._state_log = state_log
        self._access = access
        self._validator = validator
        self._partitioner = partitioner
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._auto_create_topics = auto_create_topics
        self._token = token
        self._open: dict[str, Transaction] = {}  # in order of `began`
        self._owned: dict[Hashable, set[str]] = {}
        self._ended: dict[str, str] = {}  # id → outcome, of the most recently dropped ones
        self._size = 0
        self._held: dict[str, _OpenTotals] = {}  # by tenant

    def __len__(self) -> int:
        return len(self._open)

    # -- for clients

    def begin(self, identity: Identity, owner: Hashable, scope: Scope) -> str:
        """The id of a new transaction, for an identity that may write something in the scope."""
        self._access.require_any(identity, Permission.WRITE, scope)
        self._state_log.current()
        mine, limits = self._owned.get(owner, set()), self._limits
        if len(mine) >= limits.transactions_per_owner:
            raise LimitReached(f"{limits.transactions_per_owner} transactions of one client are open: the limit")
        tenant, held = scope.tenant, self._held.get(scope.tenant, _NONE_OPEN)
        check_room("open transactions", limits.transactions, len(self._open), tenant, held.open, limits.tenant_share)
        id = new_id(identity, self._token(TOKEN_BYTES))  # noqa: A001 - it is the transaction's id
        self._open[id] = Transaction(id, owner, scope, self._clock())
        self._hold(tenant, 1, 0)
        self._owned.setdefault(owner, mine).add(id)
        return id

    def add(
        self,
        identity: Identity,
        id: str,  # noqa: A002 - it is the transaction's id
        scope: Scope,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        partition: int = ANY,
        expires: int = 0,
        headers: Headers = (),
    ) -> None:
        """Add a record. Errors that would make the commit fail are raised here already, as far as they can be foreseen.

        Records that become dead letters (see `RecordValidator.validate`) are part of the transaction; so are topics
        that are created on first use, at the commit.
        """
        self._access.require(identity, Permission.WRITE, scope, topic)
        transaction = self._active(identity, id)
        found = self._topic(identity, scope, topic, [])
        chosen = 0 if partition == ANY else partition
        if not 0 <= chosen < found.partitions:
            raise PartitionNotFound(topic, partition, found.partitions)
        self._validator.check_room(scope.tenant)
        admitted = self._validator.validate(found, [chosen], [value], [key], [headers] if headers else None)
        size = transaction.size_of(scope, topic, value, key, headers, letter=bool(admitted.dead_lettered))
        self._check_room(transaction, size)
        transaction.add(scope, topic, value, key, partition, expires, headers, size)
        self._hold(transaction.scope.tenant, 0, size)

    def commit(self, identity: Identity, id: str) -> tuple[Committed, CommitGroup | None]:  # noqa: A002
        """Append all records; they are visible when the group is committed (None: they already are). If the group
        fails, or this raises, nothing is stored and the commit may be retried. A successful commit may be retried too:
        it takes effect once, even across a restart.

        Permissions are checked again: they may have been revoked since the records were added.
        """
        try:
            transaction = self._active(identity, id)
        except TransactionNotActive as inactive:
            if inactive.state not in (COMMITTING, COMMITTED):
                raise
            state = self._state_log.current()
            return Committed(0, 0, state.transactions.get(id, 0), repeated=True), self._state_log.pending_commit
        started, now = self._metrics.timer(), self._clock()
        writes, created, size, dead_lettered = self._writes(identity, transaction)
        appended = self._state_log.append(
            writes, [*created, TransactionCommitted(id, now)], door=self._metrics.caller.number
        )
        transaction.outcome = appended.group
        if transaction.records:
            self._metrics.produced(appended.group, transaction.records, size, started)
        self._metrics.records_diverted += dead_lettered
        appended.group.on_done(lambda group: self._settle(transaction, group))
        for event in created:
            self._audit.topic_created(identity, event)
        return Committed(transaction.records, dead_lettered, appended.timestamp), appended.group

    def rollback(self, identity: Identity, id: str) -> None:  # noqa: A002 - it is the transaction's id
        """Drop the transaction and its records. Needs no permission."""
        transaction = self._active(identity, id)
        self._end(transaction, ROLLED_BACK)

    # -- for administrators and the server

    def open_in(self, identity: Identity, scope: Scope) -> Sequence[OpenTransaction]:
        """Open transactions that were begun in the scope, oldest first: for the tenant's administrators."""
        self._access.require(identity, Permission.ADMIN, Scope(scope.tenant, "*"), "")
        return [
            OpenTransaction(
                each.id, each.state, each.began, each.records, each.size, sorted(name for _, name in each.by_topic)
            )
            for each in self._open.values()
            if each.scope == scope
        ]

    def abort(self, identity: Identity, scope: Scope, id: str) -> None:  # noqa: A002 - it is the transaction's id
        """Drop any transaction of the tenant: for its administrators. The owner is then told that it was rolled
        back.
        """
        with self._audit.attempt(identity, "transaction.abort", scope=scope, resource=id):
            self._access.require(identity, Permission.ADMIN, Scope(scope.tenant, "*"), "")
            found = self._open.get(id)
            if found is None or found.scope != scope:
                raise TransactionNotFound(id)
            if found.state != ACTIVE:
                raise TransactionNotActive(found.state)
            self._end(found, ROLLED_BACK)
        self._audit.note(identity, "transaction.abort", scope=scope, resource=id, action="abort")

    def abandon(self, owner: Hashable) -> None:
        """The owner is gone: drop its transactions, except those that are being committed."""
        for id in sorted(self._owned.get(owner, ())):  # noqa: A001 - it is the transaction's id
            transaction = self._open[id]
            transaction.orphaned = True
            if transaction.state == ACTIVE:
                self._end(transaction, ROLLED_BACK)

    def sweep(self, now: int) -> None:
        """Drop transactions that have timed out. Called a few times a second; `now` is the wall clock, in µs."""
        late = []
        for transaction in self._open.values():
            if transaction.began + self._limits.transaction_us > now:
                break
            late.append(transaction)
        for transaction in late:
            if transaction.state == ACTIVE:
                self._end(transaction, TIMED_OUT)
                self._metrics.transactions_timed_out += 1

    # -- rules

    def _active(self, identity: Identity, id: str) -> Transaction:  # noqa: A002 - it is the transaction's id
        committed = self._state_log.current().transactions
        if not belongs(id, identity):
            raise TransactionNotFound(id)
        transaction = self._open.get(id)
        if transaction is not None:
            if transaction.state == ACTIVE:
                return transaction
            raise TransactionNotActive(transaction.state)
        how = COMMITTED if id in committed else self._ended.get(id)
        raise TransactionNotFound(id) if how is None else TransactionNotActive(how)

    def _topic(self, identity: Identity, scope: Scope, name: str, coming: list[TopicCreated]) -> Topic:
        """The existing topic, or the one that will exist once the events in `coming` are committed; may add to
        `coming`.
        """
        state = self._state_log.current()
        existing = state.topics.get(scope, {}).get(name)
        if existing is not None:
            return existing
        for created in coming:
            if (created.tenant, created.namespace, created.name) == (*scope, name):
                return topic_of(created)
        if not self._auto_create_topics:
            raise TopicNotFound(name)
        self._access.require(identity, Permission.CREATE, scope, name)
        coming.append(topic_rules.create(state, self._limits, scope, name, 1, _DEFAULT_SETTINGS, self._clock(), coming))
        return topic_of(coming[-1])

    def _check_room(self, transaction: Transaction, size: int) -> None:
        limits = self._limits
        if transaction.records >= limits.transaction_records:
            raise TransactionTooLarge(f"A transaction holds {limits.transaction_records} records at most")
        if transaction.size + size > limits.transaction_bytes:
            raise TransactionTooLarge(f"A transaction holds {limits.transaction_bytes} bytes at most")
        tenant, limit = transaction.scope.tenant, limits.transactions_bytes
        mine = self._held.get(tenant, _NONE_OPEN).size
        check_room("bytes in open transactions", limit, self._size, tenant, mine, limits.tenant_share, size)

    def _writes(
        self, identity: Identity, transaction: Transaction
    ) -> tuple[list[Records], list[TopicCreated], int, int]:
        """The writes of a commit, the topics to create, the bytes of keys and values, and the number of dead
        letters.
        """
        writes: list[Records] = []
        created: list[TopicCreated] = []
        size = dead_lettered = 0
        self._access.require_any(identity, Permission.WRITE, transaction.scope)  # it may hold no records
        for scope, name in transaction.by_topic:
            self._access.require(identity, Permission.WRITE, scope, name)
        for (scope, name), records in transaction.by_topic.items():
            topic = self._topic(identity, scope, name, created)
            chosen = self._partitioner.choose(topic, records.keys, records.partitions)
            keys = records.keys if any(records.keys) else None
            expires = records.expires if any(records.expires) else None
            headers = records.headers if any(records.headers) else None
            admitted = self._validator.validate(topic, chosen, records.values, keys, headers, expires, coming=created)
            writes += admitted.writes
            created += admitted.events
            size += admitted.size
            dead_lettered += len(admitted.dead_lettered)
        return writes, created, size, dead_lettered

    def _settle(self, transaction: Transaction, group: CommitGroup) -> None:
        if group.state is GroupState.COMMITTED:
            self._drop(transaction)
            self._metrics.transactions_committed += 1
        elif transaction.orphaned:
            self._end(transaction, ROLLED_BACK)

    def _end(self, transaction: Transaction, how: str) -> None:
        self._drop(transaction)
        self._metrics.transactions_dropped += 1
        self._ended[transaction.id] = how
        if len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def _drop(self, transaction: Transaction) -> None:
        del self._open[transaction.id]
        self._hold(transaction.scope.tenant, -1, -transaction.size)
        mine = self._owned[transaction.owner]
        mine.remove(transaction.id)
        if not mine:
            del self._owned[transaction.owner]

    def _hold(self, tenant: str, count: int, size: int) -> None:
        held = self._held.get(tenant, _NONE_OPEN)
        held = _OpenTotals(held.open + count, held.size + size)
        self._size += size
        if held.open:
            self._held[tenant] = held
        else:
            self._held.pop(tenant, None)
