"""The audit log: changes, refusals and logins, as records of the topic `__audit` of each tenant.

An event is a JSON document (`audit_event`). Only this module writes to the topic, and only retention removes from it.
Guarantees:

- The event of a change is appended in the same turn as the change, right after it. Both are in one commit group, so
  that neither exists without the other; only if that group fills up in between is the event in the next one.
- An event that cannot be appended does not fail the action: it is counted, and the next event of its kind has the
  number of missing ones.
- Clients control how often they are refused, log in, or state why they read. Such events pass a `Throttle`: the first
  is written immediately, repetitions within a minute as one more event with their count, and beyond a rate they are
  only counted. A crash loses counts that were not written yet.
- A failed administrative operation is recorded with its reason (`attempt`).
- A refusal, or the result of an audited read, is sent only after its event is committed; and a query for events finds
  all that were recorded before.
- The events of a log form a hash chain (`audit_chain`). Its last link is part of the state, so that it continues
  correctly after a restart and after a failed commit group.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Final, Never, TypeAlias, TypeVar

import msgspec

from penstock.broker.errors import AccessDenied, AuditOff, BrokerError, InvalidArgument, InvalidName
from penstock.broker.names import DEFAULT_SCOPE, Scope, check_scope
from penstock.broker.runtime.clock import Clock
from penstock.broker.runtime.executor import BoundedExecutor, Deferred, Executor
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.runtime.throttle import SECOND, WINDOW, Decision, RateLimit, Throttle
from penstock.broker.security import audit_chain, audit_event
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.security.audit_chain import ChainMark, ChainReport
from penstock.broker.security.audit_event import AuditEvent, AuditPage, AuditPolicy, AuditQuery, Result
from penstock.broker.state.events import AnyEvent, AuditChained, TopicCreated, TopicSettingsChanged
from penstock.broker.state.state import State, Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import CommitGroup, Engine, GroupState, ReadPlan, Records, partition_id
from penstock.log.errors import LogError

__all__ = ("TOPIC", "Audit", "AuditEvent", "AuditPage", "AuditPolicy", "AuditQuery")  # including types for its callers

logger = logging.getLogger(__name__)

TOPIC: Final = "__audit"

# At this rate, events of 400 bytes make 3.5 MB a day: pushing older events out of the log by being refused takes weeks,
# and is recorded all the time.
REFUSED: Final = RateLimit(100, 10 * SECOND)
ADMITTED: Final = RateLimit(1000, SECOND)  # successful logins, and other frequent actions of clients

STEP_RECORDS: Final = 1024  # read and examined in one step
STEP_BYTES: Final = 1 << 30  # no limit: events are small
BREATH: Final = 32  # events between two yields of the interpreter to the event loop
MAX_TIME: Final = 1 << 50  # ms

Found = TypeVar("Found")

_Family: TypeAlias = tuple[str, str]  # tenant and type
_Noted: TypeAlias = tuple[str, AuditEvent]  # with its tenant


class Audit:
    """`note` and `denied` are for services of the broker, `query`, `export` and `verify` for clients."""

    def __init__(
        self,
        state_log: StateLog,
        access: Access,
        policy: AuditPolicy,
        metrics: Metrics,
        clock: Clock,
        executor: Executor,
    ) -> None:
        self.policy = policy
        self._state_log = state_log
        self._access = access
        self._metrics = metrics
        self._clock = clock
        self._executor = BoundedExecutor(executor, 1)  # one search at a time: each may scan the whole log
        self._throttle: Throttle[_Family, _Noted] = Throttle()
        self._settings = TopicSettings(retention_seconds=policy.seconds, retention_bytes=policy.bytes)
        self._told_left_out = 0  # time of the last report by `sweep`
        self._last: CommitGroup | None = None  # of the last event
        self._attempt: Attempt | None = None  # the administrative operation in progress
        self._failed: tuple[Exception, Attempt] | None = None  # the error of a nested attempt, and that attempt
        self._links: dict[int, bytes | None] = {}  # topic → last committed link, if this process wrote any

    # -- recording

    def note(
        self,
        identity: Identity,
        type: str,  # noqa: A002 - it is the event's type
        *,
        scope: Scope | None = None,
        resource: str = "",
        action: str = "",
        result: Result = "success",
        **details: str,
    ) -> CommitGroup | None:
        """Record an event in `scope`, or else in the identity's tenant. Never raises, and never fails the action. The
        details must not contain secrets. Returns the group of the event; None if it was only counted, or could not be
        written.
        """
        if not self.policy.enabled:
            return None
        try:
            return self._note(identity, type, scope, resource, action, result, details)
        except Exception:  # a bug must not fail the client's request
            self._metrics.audit_lost += 1
            keys = {"tenant": identity.tenant, "peer": identity.peer, "type": type}
            logger.exception("an audit event of type %s could not be made", type, extra=keys)
            return None

    def attempt(
        self,
        identity: Identity,
        type: str,  # noqa: A002 - it is the event's type
        *,
        scope: Scope | None = None,
        resource: str = "",
    ) -> Attempt:
        """The context of an administrative operation: an error that leaves it is recorded. The operation itself records
        success.
        """
        return Attempt(self, identity, type, scope, resource)

    def denied(self, identity: Identity, permission: Permission, scope: Scope, resource: str) -> None:
        """Implements `Access.on_denied`."""
        self.note(identity, "access.denied", scope=scope, resource=resource, action=permission, result="denied")

    def topic_created(self, identity: Identity, event: TopicCreated) -> None:
        scope = Scope(event.tenant, event.namespace)
        count = str(event.partitions)
        self.note(identity, "topic.create", scope=scope, resource=event.name, action="create", partitions=count)

    def _note(
        self,
        identity: Identity,
        kind: str,
        scope: Scope | None,
        resource: str,
        action: str,
        result: Result,
        details: dict[str, str],
    ) -> CommitGroup | None:
        if self._state_log.closed:
            return None
        now = self._clock()
        self._state_log.drop_failed()
        tenant = _home(self._state_log.state, identity, scope, trusted=result == "success")
        if scope is not None:
            scope_details = {"tenant": (scope.tenant, tenant), "namespace": (scope.namespace, DEFAULT_SCOPE.namespace)}
            details |= {name: given for name, (given, usual) in scope_details.items() if given not in ("*", usual)}
        if identity.context:
            details |= {name: text for name, text in identity.context if name not in details}
        event = audit_event.event(
            now, kind, identity.name, identity.peer, resource, action, result, self.policy.node, details
        )
        limit = REFUSED if result != "success" else ADMITTED if kind in audit_event.OFTEN else None
        if limit is not None:
            family = tenant, kind
            varying = (
                tuple(event.details.items()) if result == "success" else ()
            )  # authorized clients have no reason to vary the details
            likeness = (event.user, event.client_ip, event.resource, event.action, result, varying)
            decision = self._throttle.admit(family, likeness, limit, (tenant, event), now)
            if decision is not Decision.WRITTEN:
                self._metrics.audit_left_out += decision is Decision.LEFT_OUT
                return None
        return self._write(tenant, event)

    def sweep(self, now: int) -> None:
        """Write the counts of throttled events; called a few times a second."""
        for (tenant, first), count, last in self._throttle.ended(now):
            self._write_count(tenant, first, count, last)
        if not 0 <= now - self._told_left_out < WINDOW:
            self._told_left_out = now
            self._write_left_out(now)

    def flush(self) -> None:
        """Write all remaining counts, before the log is closed."""
        if self._state_log.closed:
            return
        for (tenant, first), count, last in self._throttle.ended(None):
            self._write_count(tenant, first, count, last)
        self._write_left_out(self._clock())

    def _write_count(self, tenant: str, first: AuditEvent, count: int, last: int) -> None:
        since = str(first.timestamp)
        details = first.details | {"count": str(count), "since": since}
        self._write(tenant, msgspec.structs.replace(first, timestamp=last // 1000, details=details))

    def _write_left_out(self, now: int) -> None:
        for tenant, kind in list(self._throttle.left_out):
            event = audit_event.event(now, kind, "", "", "", "", "failure", self.policy.node, {})
            self._write(tenant, event, counts=False)

    def _write(self, tenant: str, event: AuditEvent, *, counts: bool = True) -> CommitGroup | None:
        family = tenant, event.type
        left_out = self._throttle.left_out.get(family)
        if left_out:
            event.details["left_out"] = str(left_out)
        try:
            group = self._append(tenant, audit_event.encode(event))
        except (LogError, BrokerError) as error:
            self._metrics.audit_lost += counts
            if counts:
                self._throttle.leave_out(family)
            keys = {"tenant": tenant, "type": event.type}
            logger.warning("an audit event of type %s could not be written: %s", event.type, error, extra=keys)
            return None
        self._throttle.left_out.pop(family, None)
        self._metrics.audit_events += 1
        return group

    def _append(self, tenant: str, document: bytes) -> CommitGroup:
        state = self._state_log.current()
        topic = _topic(state, tenant)
        events: list[AnyEvent] = []
        if topic is None:
            # Exempt from the limit on topics: there is one per tenant that has anything.
            scope = Scope(tenant, DEFAULT_SCOPE.namespace)
            created = TopicCreated(state.next_topic_id, *scope, TOPIC, 1, self._settings, self._clock())
            events, number = [created], created.id
        else:
            number = topic.id
            if topic.settings != self._settings:
                events = [TopicSettingsChanged(number, self._settings)]
        before = state.chains.get(number, audit_chain.GENESIS)
        link = audit_chain.link(before, document)
        self._links.setdefault(number, state.chains.get(number))  # this link is committed: only this process adds any
        headers = (audit_chain.header(before, link),)
        records = (Records(partition_id(number, 0), (document,), headers=headers),)
        chained = (*events, AuditChained(number, link))
        group = self._state_log.append(records, chained, shown=bool(events)).group  # a login need not wait for it
        group.on_done(lambda group: self._done(group, number, link))
        self._last = group
        return group

    @property
    def pending_commit(self) -> CommitGroup | None:
        """The group to wait for before showing something that must not be seen without an audit event."""
        return self._last if self._last is not None and self._last.state is not GroupState.COMMITTED else None

    def _done(self, group: CommitGroup, topic: int, link: bytes) -> None:
        if group.state is GroupState.FAILED:
            self._metrics.audit_lost += 1
        else:
            self._links[topic] = link

    # -- reading

    def query(self, identity: Identity, tenant: str, query: AuditQuery) -> Deferred[AuditPage, AuditPage]:
        """The events of the tenant that match the query, newest first, including all that were recorded before, once
        committed.
        """
        limit = min(query.limit or audit_event.DEFAULT_PAGE, audit_event.MAX_PAGE)

        def page(scan: _Scan) -> AuditPage:
            total = scan.count()
            events = list(scan.events(query.offset, limit))
            return AuditPage(events, total, query.offset + len(events) < total)

        return self._search(identity, tenant, query, page)

    def export(
        self,
        identity: Identity,
        tenant: str,
        query: AuditQuery,
        format: str,  # noqa: A002 - that is what it is
    ) -> Deferred[bytes, bytes]:
        """All matching events, newest first, as one document: "json" or "csv". Raises LimitReached if it is too
        large.
        """
        encode = audit_event.FORMATS.get(format)

        def document(scan: _Scan) -> bytes:
            assert encode is not None
            total = scan.count()
            return encode(scan.events(query.offset, query.limit or total))

        work = self._search(identity, tenant, query, document)
        if encode is None:
            raise InvalidArgument(f"The audit log is exported as {' or '.join(audit_event.FORMATS)}, not {format!r}")
        return work

    def verify(
        self, identity: Identity, scope: Scope, mark: ChainMark | None = None, max_count: int | None = None
    ) -> Deferred[ChainReport, ChainReport]:
        """Check the hash chain of the tenant's committed log, from the oldest event that is kept. With `max_count`,
        check that many events: then the report has a `mark`, from which to continue.
        """
        self._access.require(identity, Permission.AUDIT, Scope(scope.tenant, "*"), "")
        if _topic(self._state_log.current(), scope.tenant) is None and not self.policy.enabled:
            raise AuditOff
        return self._deferred(lambda: self._verification(scope.tenant, mark, max_count))

    def _verification(self, tenant: str, mark: ChainMark | None, max_count: int | None) -> Callable[[], ChainReport]:
        state, engine = self._state_log.current(), self._state_log.engine
        topic = _topic(state, tenant)
        partition = partition_id(0 if topic is None else topic.id, 0)
        first, end = (0, 0) if topic is None else engine.bounds(partition)
        if mark is None or mark.offset < first:  # retention may have removed it meanwhile
            mark = ChainMark(first)
        stop = end if max_count is None else min(end, mark.offset + max(1, max_count))
        number = 0 if topic is None else topic.id
        remembered = self._links.get(number, state.chains.get(number))
        check = audit_chain.ChainCheck(mark, whole=first == 0, remembered=remembered)
        plans = [
            engine.read(partition, offset, STEP_BYTES, min(STEP_RECORDS, stop - offset))
            for offset in range(mark.offset, stop, STEP_RECORDS)
        ]

        def follow() -> ChainReport:
            for part in (part for plan in plans for part in plan.run()):
                time.sleep(0)  # yield the GIL to the event loop
                if not check.take(part.base_offset, part.values(), part.headers()):
                    break
            return check.report(first, end, over=stop == end)

        return follow

    def _search(
        self, identity: Identity, tenant: str, query: AuditQuery, work: Callable[[_Scan], Found]
    ) -> Deferred[Found, Found]:
        self._access.require(identity, Permission.AUDIT, Scope(tenant, "*"), "")
        audit_event.check(query)
        if _topic(self._state_log.current(), tenant) is None and not self.policy.enabled:
            raise AuditOff

        def plan() -> Callable[[], Found]:
            topic = _topic(self._state_log.current(), tenant)
            scan = _Scan(self._state_log.engine, None if topic is None else topic.id, query)
            return lambda: work(scan)

        return self._deferred(plan)

    def _deferred(self, plan: Callable[[], Callable[[], Found]]) -> Deferred[Found, Found]:
        """Work that is planned once everything recorded before is committed."""
        return Deferred(_unplanned, lambda found: found, executor=self._executor, plan=plan, after=self._last)


def _unplanned() -> Never:
    raise AssertionError("the plan has the work")


class Attempt:
    """An administrative operation: a failure is recorded with its reason, and the error propagates. An attempt nested
    in another one is part of it: only the outermost decides success or failure, but the innermost that failed is
    recorded. It must not await anything.
    """

    __slots__ = ("_audit", "_identity", "_resource", "_scope", "_type")

    def __init__(self, audit: Audit, identity: Identity, kind: str, scope: Scope | None, resource: str) -> None:
        self._audit = audit
        self._identity = identity
        self._type = kind
        self._scope = scope
        self._resource = resource

    def __enter__(self) -> None:
        if self._audit._attempt is None:
            self._audit._attempt = self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        audit = self._audit
        failed = audit._failed
        if isinstance(error, Exception) and (failed is None or failed[0] is not error):
            audit._failed = failed = error, self
        if audit._attempt is not self:
            return
        audit._attempt = audit._failed = None
        if isinstance(error, Exception) and failed is not None:
            failed[1]._note(error)

    def _note(self, error: Exception) -> None:
        result: Result = "denied" if isinstance(error, AccessDenied) else "failure"
        action, reason = self._type.partition(".")[2], str(error) or type(error).__name__
        self._audit.note(
            self._identity,
            self._type,
            scope=self._scope,
            resource=self._resource,
            action=action,
            result=result,
            reason=reason,
        )


def _topic(state: State, tenant: str) -> Topic | None:
    return state.topics.get(Scope(tenant, DEFAULT_SCOPE.namespace), {}).get(TOPIC)


def _home(state: State, identity: Identity, scope: Scope | None, *, trusted: bool) -> str:
    """The tenant whose log gets the event. A refusal goes to the log of the identity's own tenant, so that nobody can
    fill another tenant's log. Only successful actions create a log for a tenant that has none: names made up by clients
    do not.
    """
    tenant = None if scope is None else scope.tenant
    if tenant is None or not trusted:
        tenant = identity.tenant or tenant
    known = tenant is not None and (trusted or tenant == identity.tenant or tenant in state.tenants)
    if tenant is None or not known or not _is_tenant(tenant):
        return DEFAULT_SCOPE.tenant
    return tenant


def _is_tenant(name: str) -> bool:
    try:
        check_scope(Scope(name, DEFAULT_SCOPE.namespace))
    except InvalidName:
        return False
    return True


class _Scan:
    """A search: created on the broker's thread, run on any thread. It first scans and counts all events, then reads the
    requested ones again: so it holds only one step in memory, whatever the number of matches.
    """

    def __init__(self, engine: Engine, topic: int | None, query: AuditQuery) -> None:
        self._engine = engine
        self._partition = partition_id(topic or 0, 0)
        self._prefix = f"{topic}-"  # of the events' ids, followed by the offset
        self._start = min(query.start, MAX_TIME) * 1000
        self._fits = audit_event.matcher(query)
        first, end = (0, 0) if topic is None else engine.bounds(self._partition)
        self._plans = [
            (offset, engine.read(self._partition, offset, STEP_BYTES, min(STEP_RECORDS, end - offset)))
            for offset in range(first, end, STEP_RECORDS)
        ]
        self._found: list[tuple[ReadPlan, array[int]]] = []  # indexes of the matching records of each plan

    def count(self) -> int:
        """Scan all events that are not too old; returns the number of matches."""
        first: int | None = 0
        if self._plans and self._start > 0:
            first = self._engine.offset_at(self._partition, self._start)
        for offset, plan in self._plans:
            if first is not None and first < offset + STEP_RECORDS:
                self._found.append((plan, self._fitting(plan)))
        return sum(len(found) for _, found in self._found)

    def _fitting(self, plan: ReadPlan) -> array[int]:
        fitting = array("H")
        for index, (_, document) in enumerate(_records(plan)):
            event = audit_event.decode(document)
            if event is not None and self._fits(event):
                fitting.append(index)
            if not index % BREATH:
                time.sleep(0)  # yield the GIL to the event loop
        return fitting

    def events(self, skip: int, max_count: int) -> Iterator[AuditEvent]:
        """The matching events, newest first; call `count` first."""
        for plan, fitting in reversed(self._found):
            wanted = fitting[::-1][skip : skip + max_count]
            skip = max(0, skip - len(fitting))
            max_count -= len(wanted)
            records = list(_records(plan)) if wanted else []
            for index in wanted:
                offset, document = records[index]
                event = audit_event.decode(document)
                assert event is not None, "it fitted the query"
                event.id = f"{self._prefix}{offset}"
                yield event


def _records(plan: ReadPlan) -> Iterator[tuple[int, bytes]]:
    for part in plan.run():
        yield from enumerate(part.values(), part.base_offset)
