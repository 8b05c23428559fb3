"""SQL statements: queues and scheduling. Statements run in separate processes, one at a time in each, which do not know
identities: the `capability` checks permissions with the identity of the statement.

Each tenant has its own queue, and the queues are served round-robin. A tenant has a limited share of the running
statements and of the queues (`fair_share`), so that no tenant is blocked by another's statements. If there is still no
room for a tenant without running statements, the longest-running statement is interrupted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from penstock.broker.errors import BrokerError, QueriesOff, QueryError, QueryTooLarge, ShuttingDown, TooFast
from penstock.broker.names import Scope
from penstock.broker.queries.query import Value
from penstock.broker.queries.query_capability import QueryCapability
from penstock.broker.queries.statement import Stage, Statement
from penstock.broker.runtime.clock import Clock
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.state.state_log import StateLog
from penstock.broker.tenancy.fair_share import allowance

GRACE: Final = 5_000_000  # µs that the process may take to stop a statement that should have ended
GUARANTEED: Final = 5_000_000  # µs after which a statement may be interrupted for other tenants
PATIENT: Final = 250_000  # µs that a statement waits before another is interrupted for it
_SECOND: Final = 1_000_000  # µs


def _ignore() -> None:
    """The callback of statements to stop while there is no SQL worker."""


class QueryPolicy(NamedTuple):
    enabled: bool = False
    ahead: bool = False  # start the SQL worker before the first statement arrives
    seconds: float = 30.0  # most that one statement may take
    queue_timeout: float = 30.0  # most seconds in the queue; the process may have to start first
    waiting: int = 1_024  # statements in all queues together
    waiting_of_tenant: int = 256
    waiting_bytes: int = 64 << 20  # of their texts and parameters
    at_once: int = 1_024  # most statements running concurrently
    tenant_share: float = 1.0  # a tenant's share of each of these; see `fair_share`


class Queries:
    def __init__(
        self,
        capability: QueryCapability,
        state_log: StateLog,
        access: Access,
        policy: QueryPolicy,
        metrics: Metrics,
        monotonic: Clock,
    ) -> None:
        self.policy = policy
        self.capability = capability
        self._on_waiting: Callable[[], None] | None = None  # None: no SQL worker
        self._on_stopped: Callable[[], None] = _ignore
        self._state_log = state_log
        self._access = access
        self._metrics = metrics
        self._monotonic = monotonic
        self._number = 0
        self._closed = False
        self._queues: dict[str, deque[Statement]] = {}  # by tenant, in round-robin order
        self._waiting = self._bytes = 0  # of all queues together
        self._bytes_of: dict[str, int] = {}  # by tenant

    def run(
        self,
        identity: Identity,
        scope: Scope,
        sql: str,
        params: Sequence[Value] = (),
        position: int | None = None,
        reason: str | None = None,
        *,
        read_only: bool = False,
    ) -> Statement:
        """A statement to be started, limited to the streams of `scope`. With `position`, it sees the log as of that
        position; `reason` justifies access to data that is not usually the caller's, and is recorded in the audit log.

        Permissions are checked for each stream when the statement reads or changes it.
        """
        self._access.require_any(identity, Permission.READ, scope)
        self._number += 1
        statement = Statement(self, self._number, identity, scope, sql, params, position, reason)
        statement.read_only = read_only
        return statement

    def attach_worker(self, on_waiting: Callable[[], None], on_stopped: Callable[[], None] = _ignore) -> None:
        """There is an SQL worker: it is called when a statement waits, and when a process has to stop one (see
        `QueryCapability.to_stop`)."""
        self._on_waiting, self._on_stopped = on_waiting, on_stopped

    def expect(self) -> None:
        """A client has connected that may send statements: start the SQL worker now, so that it need not wait later."""
        if self.policy.enabled and self.policy.ahead and self._on_waiting is not None:
            self._on_waiting()

    # -- for statements

    def submit(self, statement: Statement) -> None:
        """Queue a statement once pending state changes are committed, so that it sees everything its sender was
        told.
        """
        if (refusal := self._refusal()) is not None:
            statement.end(refusal, 0)
            return
        pending_commit = self._state_log.pending_commit
        if pending_commit is None:
            self._enqueue(statement)
        else:
            pending_commit.on_done(lambda _: self._enqueue(statement))

    def _refusal(self) -> BrokerError | None:
        if self._closed:
            return ShuttingDown("The broker is shutting down")
        if not self.policy.enabled:
            return QueriesOff("SQL is not available: sql.enabled is off")
        if self._on_waiting is None:
            return QueriesOff("SQL is not available: there is no process here that carries statements out")
        return None

    def _enqueue(self, statement: Statement) -> None:
        if statement.stage is not Stage.NEW:
            return  # cancelled meanwhile
        if (refusal := self._refusal()) is not None:  # the broker was stopped meanwhile
            statement.end(refusal, 0)
            return
        now, policy, tenant = self._monotonic(), self.policy, statement.scope.tenant
        mine, mine_bytes = len(self._queues.get(tenant, ())), self._bytes_of.get(tenant, 0)
        room = min(policy.waiting_of_tenant, allowance(policy.waiting, self._waiting - mine, policy.tenant_share))
        room_bytes = allowance(policy.waiting_bytes, self._bytes - mine_bytes, policy.tenant_share)
        if mine >= room or mine_bytes + statement.byte_size > room_bytes:
            # Without the number: it would reveal other tenants' statements.
            statement.end(TooFast("Too many statements wait already: try again later"), now)
            return
        statement.move(Stage.WAITING, now)
        self._queues.setdefault(statement.scope.tenant, deque()).append(statement)
        self._count(statement, 1)
        if self._on_waiting is not None:
            self._on_waiting()

    def cancel(self, statement: Statement) -> None:
        now = self._monotonic()
        if statement.stage is Stage.WAITING:
            self._leave(statement)
        elif statement.stage is Stage.RUNNING:
            self.capability.stop(statement)
            self._on_stopped()
        statement.end(QueryError("The statement was cancelled"), now)

    def ended(self, statement: Statement) -> None:
        self._metrics.statements += 1
        self._metrics.statement_failures += statement.error is not None

    def _leave(self, statement: Statement) -> None:
        tenant = statement.scope.tenant
        self._queues[tenant].remove(statement)
        self._count(statement, -1)
        if not self._queues[tenant]:
            del self._queues[tenant]

    def _count(self, statement: Statement, sign: int) -> None:
        tenant, size = statement.scope.tenant, sign * statement.byte_size
        self._waiting += sign
        self._bytes += size
        self._bytes_of[tenant] = self._bytes_of.get(tenant, 0) + size
        if not self._bytes_of[tenant]:
            del self._bytes_of[tenant]

    # -- for the capability and the server

    def next(self, worker: object = None, *, last: bool = False) -> Statement | None:
        """Start the next statement, of a tenant that is below its share; the tenant's queue then moves behind the
        others. `worker` represents the process that asks; if it is the `last` free one, only tenants without running
        statements are served.
        """
        running = self._running_of() if last else {}
        tenant = next((tenant for tenant in self._startable() if tenant not in running), None)
        if tenant is None:
            return None
        queue = self._queues.pop(tenant)
        statement = queue.popleft()
        self._count(statement, -1)
        if queue:
            self._queues[tenant] = queue
        self.capability.begin(statement, worker)
        return statement

    def _running_of(self) -> dict[str, int]:
        """The number of running statements, by tenant."""
        found: dict[str, int] = {}
        for statement in self.capability.running():
            found[statement.scope.tenant] = found.get(statement.scope.tenant, 0) + 1
        return found

    def _startable(self) -> list[str]:
        """The tenants that may start one more statement, in round-robin order."""
        running, policy = self._running_of(), self.policy
        total = sum(running.values())
        return [
            tenant
            for tenant in self._queues
            if (mine := running.get(tenant, 0)) < allowance(policy.at_once, total - mine, policy.tenant_share)
        ]

    @property
    def startable(self) -> int:
        """The number of tenants that could use one more process."""
        return len(self._startable())

    def make_room(self) -> Statement | None:
        """Interrupt a long-running statement in favor of a tenant that has none running, if there is no other room;
        called about once a second. The client of the interrupted statement gets an error; statements that have changed
        something are never interrupted.
        """
        running, now = self._running_of(), self._monotonic()
        waiting = any(
            tenant not in running and now - queue[0].since > PATIENT for tenant, queue in self._queues.items()
        )
        under_way = self.capability.running()
        if not waiting or len(under_way) < self.policy.at_once or any(one.stage is Stage.OVER for one in under_way):
            return None
        long = [one for one in under_way if now - one.since > GUARANTEED and not one.changed]
        if not long:
            return None
        victim = max(long, key=lambda one: (running[one.scope.tenant], now - one.since))
        seconds = (now - victim.since) / _SECOND
        self.capability.stop(victim)
        self._on_stopped()
        victim.end(
            TooFast(f"The statement was interrupted after {seconds:.0f} s for others that wait: try again later"), now
        )
        return victim

    def lost(
        self,
        culprits: Sequence[Statement] = (),
        why: str = "ended unexpectedly",
        worker: object = None,
        *,
        again: bool = False,
    ) -> None:
        """A worker process has died, and its statements with it. If the `culprits` are known, the others are run again,
        unless they have changed something; with `again`, all are, once, because the process may have died before it got
        to them.
        """
        now = self._monotonic()
        for statement in self.capability.drop_all(worker):
            if statement.stage is not Stage.RUNNING:
                continue
            innocent = again or (bool(culprits) and statement not in culprits)
            if innocent and not statement.changed and not statement.tries:
                statement.tries += 1
                statement.pages.clear()
                statement.stage = Stage.NEW
                self._enqueue(statement)
            elif statement.changed:
                statement.end(QueriesOff(f"The process for SQL {why}: look whether the statement took effect"), now)
            elif statement in culprits:
                statement.end(QueryTooLarge(f"The statement was ended by force: the process for SQL {why}"), now)
            else:
                statement.end(QueriesOff(f"The process for SQL {why}: try the statement again"), now)

    def overdue(self) -> list[Statement]:
        """Statements that are still running although they should have ended."""
        now, allowed = self._monotonic(), int(self.policy.seconds * _SECOND) + GRACE
        return [
            statement
            for statement in self.capability.running()
            if now - statement.since > (GRACE if statement.stage is Stage.OVER else allowed)
        ]

    def sweep(self, *, ready: bool = True) -> None:
        """Fail statements that have waited too long; called about once a second. `ready`: whether there is a worker
        process.
        """
        limit = self._monotonic() - int(self.policy.queue_timeout * _SECOND)
        late = [statement for queue in self._queues.values() for statement in queue if statement.since < limit]
        for statement in late:
            self._leave(statement)
            error: QueriesOff | TooFast = QueriesOff("The process for SQL does not start; the broker's log tells why")
            if ready:
                waited = f"{self.policy.queue_timeout:g} s"
                error = TooFast(f"The statement had to wait for {waited}, and was not begun: try again later")
            statement.end(error, self._monotonic())

    def close(self) -> None:
        """Refuse all further statements."""
        self._closed = True
        self._on_waiting = None
        while self._queues:
            statement = next(iter(self._queues.values()))[0]
            self._leave(statement)
            statement.end(ShuttingDown("The broker is shutting down"), self._monotonic())
