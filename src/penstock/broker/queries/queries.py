"""Statements of SQL: who waits for what, and what becomes of it. They are carried out in processes of their own, one in
each at a time, which know nothing of identities: what one may do is checked by the `capability`, with the identity that
it came with.

Each tenant has its own queue, and the queues take turns. A tenant has its share of what is carried out at the same time
and of the queues (`fair_share`), so that nobody waits for the statements of one tenant. If there is still no room for
one that has nothing carried out, what has run for longest is interrupted.
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

GRACE: Final = 5_000_000  # µs that the process may go on with a statement that should have ended
GUARANTEED: Final = 5_000_000  # µs after which a statement may be interrupted for other tenants
PATIENT: Final = 250_000  # µs that a statement waits before another is interrupted for it
_SECOND: Final = 1_000_000  # µs


class QueryPolicy(NamedTuple):
    enabled: bool = False
    ahead: bool = False  # what carries statements out is made ready before the first one comes
    seconds: float = 30.0  # that one statement may take
    patience: float = 30.0  # seconds that it may wait before; the process may have to start first
    waiting: int = 1_024  # statements in all queues together
    waiting_of_tenant: int = 256
    waiting_bytes: int = 64 << 20  # of their texts and parameters
    at_once: int = 1_024  # statements that are carried out at the same time
    tenant_share: float = 1.0  # what a tenant may have of each of these; see `fair_share`


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
        self.on_waiting: Callable[[], None] | None = None  # somebody wants a statement carried out; None: nobody would
        self.capability = capability
        self._state_log = state_log
        self._access = access
        self._metrics = metrics
        self._monotonic = monotonic
        self._number = 0
        self._closed = False
        self._queues: dict[str, deque[Statement]] = {}  # by tenant: the first one's turn is next
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
    ) -> Statement:
        """A statement to be started, on the streams of `scope` and on nothing else. With `position`, on the log as it
        was there; `reason` is why somebody looks at what is not usually theirs, and is noted in the audit log.

        Which streams it may read or change is checked for each of them when it comes to it."""
        self._access.require_any(identity, Permission.READ, scope)
        self._number += 1
        return Statement(self, self._number, identity, scope, sql, params, position, reason)

    def expect(self) -> None:
        """Somebody has come who may want to ask: who starts only then would let them wait."""
        if self.policy.enabled and self.policy.ahead and self.on_waiting is not None:
            self.on_waiting()

    # -- for the statements themselves

    def submit(self, statement: Statement) -> None:
        """It sees what its sender was told to be done, so it comes behind that."""
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
        if self.on_waiting is None:
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
            # Not how many: they may be those of other tenants.
            statement.end(TooFast("Too many statements wait already: try again later"), now)
            return
        statement.move(Stage.WAITING, now)
        self._queues.setdefault(statement.scope.tenant, deque()).append(statement)
        self._count(statement, 1)
        if self.on_waiting is not None:
            self.on_waiting()

    def cancel(self, statement: Statement) -> None:
        now = self._monotonic()
        if statement.stage is Stage.WAITING:
            self._leave(statement)
        elif statement.stage is Stage.RUNNING:
            self.capability.stop(statement)
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
        """The next statement to be carried out, of a tenant that has not its share; its tenant's next one comes behind
        those of the others. `worker` is whatever stands for the process that asks; if it is the `last` that is free, it
        is for tenants that have nothing carried out."""
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
        """The number of statements of each tenant that are carried out."""
        found: dict[str, int] = {}
        for statement in self.capability.running():
            found[statement.scope.tenant] = found.get(statement.scope.tenant, 0) + 1
        return found

    def _startable(self) -> list[str]:
        """The tenants, in their turn, of which one more statement may be carried out."""
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
        """Interrupt a statement that has had its time for one of a tenant that has nothing carried out, if there is no
        other room; about once a second. It is told so, and one that has changed something is not touched."""
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
        """The process is gone, and what it was at with it. Those who are not to blame, if it is known who is, are
        carried out again, unless they have changed something; with `again`, all of them, once, for it may have been
        gone before they came to it."""
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
        """Statements that are still carried out although they should have ended."""
        now, allowed = self._monotonic(), int(self.policy.seconds * _SECOND) + GRACE
        return [
            statement
            for statement in self.capability.running()
            if now - statement.since > (GRACE if statement.stage is Stage.OVER else allowed)
        ]

    def sweep(self, *, ready: bool = True) -> None:
        """Nobody waits for ever; about once a second. `ready`: whether there is a process that carries them out."""
        limit = self._monotonic() - int(self.policy.patience * _SECOND)
        late = [statement for queue in self._queues.values() for statement in queue if statement.since < limit]
        for statement in late:
            self._leave(statement)
            error: QueriesOff | TooFast = QueriesOff("The process for SQL does not start; the broker's log tells why")
            if ready:
                waited = f"{self.policy.patience:g} s"
                error = TooFast(f"The statement had to wait for {waited}, and was not begun: try again later")
            statement.end(error, self._monotonic())

    def close(self) -> None:
        """Nothing is carried out any more."""
        self._closed = True
        self.on_waiting = None
        while self._queues:
            statement = next(iter(self._queues.values()))[0]
            self._leave(statement)
            statement.end(ShuttingDown("The broker is shutting down"), self._monotonic())
