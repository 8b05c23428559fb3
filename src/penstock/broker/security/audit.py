"""The audit log: who did what, who was refused, and who came in, as records of the topic `__audit` of each tenant.

An event is a JSON document (`audit_event`). Nobody writes the topic but this module, and nobody removes from it but
retention. What is promised:

- The event of a change is appended in the same turn as the change, right after it. Both are in one commit group, so
  one is never there without the other; only if that group is full in between, the event is in the next one.
- An event that cannot be appended changes nothing for the action: it is counted, and the next one of its kind says how
  many are missing.
- Clients decide how often they are refused, log in, or say why they read. Such events go through a `Throttle`: the
  first is written at once, those like it within a minute as one more event with their count, and beyond a pace they are
  only counted. What was counted and not written yet is lost by a crash.
- An administrative operation that fails is told of with its reason (`attempt`).
- Nobody is told of a refusal, or gets what an audited read has found, before the event of it is committed; and who asks
  for events finds all that were noted before.
- The events of a log are a chain (`audit_chain`). Its last link is state, so that it goes on after a restart, and from
  the right place after a group that failed.
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
from penstock.broker.runtime.throttle import SECOND, WINDOW, Fate, Pace, Throttle
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

__all__ = ("TOPIC", "Audit", "AuditEvent", "AuditPage", "AuditPolicy", "AuditQuery")  # with what others call it with

logger = logging.getLogger(__name__)

TOPIC: Final = "__audit"

# At this pace, events of 400 bytes are 3.5 MB a day: whoever wants to push older events out of the log by being refused
# needs weeks for it, and is told of all the time.
REFUSED: Final = Pace(100, 10 * SECOND)
ADMITTED: Final = Pace(1000, SECOND)  # logins that succeed, and what else clients may do all the time

STEP_RECORDS: Final = 1024  # read and looked at in one go
STEP_BYTES: Final = 1 << 30  # no limit: an event is small, so the records are
BREATH: Final = 32  # events between two moments in which the event loop can have the interpreter
MAX_TIME: Final = 1 << 50  # ms

Found = TypeVar("Found")

_Family: TypeAlias = tuple[str, str]  # tenant and type
_Noted: TypeAlias = tuple[str, AuditEvent]  # with its tenant


class Audit:
    """`note` and `denied` are for the broker's own parts, `query`, `export` and `verify` for clients."""

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
        self._executor = BoundedExecutor(executor, 1)  # one search at a time: each may go through all that is kept
        self._throttle: Throttle[_Family, _Noted] = Throttle()
        self._settings = TopicSettings(retention_seconds=policy.seconds, retention_bytes=policy.bytes)
        self._told_left_out = 0  # when `sweep` last looked
        self._last: CommitGroup | None = None  # that a note is in
        self._attempt: Attempt | None = None  # the administrative operation that is being carried out
        self._failed: tuple[Exception, Attempt] | None = None  # the error of a part of it, and which part that was
        self._links: dict[int, bytes | None] = {}  # topic → the last link that is committed, if this process made any

    # -- noting

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
        """Write down what happened in `scope`, or else in the identity's tenant. Never raises, and never fails what it
        is called for. Nothing that opens anything belongs into the details. The group that the event is in; None if it
        was counted, or could not be written."""
        if not self.policy.enabled:
            return None
        try:
            return self._note(identity, type, scope, resource, action, result, details)
        except Exception:  # a mistake of ours: no reason to refuse a client
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
        """The context of an administrative operation: an error that leaves it is noted. That it went well, the
        operation notes itself."""
        return Attempt(self, identity, type, scope, resource)

    def denied(self, identity: Identity, permission: Permission, scope: Scope, resource: str) -> None:
        """For `Access.on_denied`."""
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
        pace = REFUSED if result != "success" else ADMITTED if kind in audit_event.OFTEN else None
        if pace is not None:
            family = tenant, kind
            varying = (
                tuple(event.details.items()) if result == "success" else ()
            )  # who was let has no reason to vary it
            likeness = (event.user, event.client_ip, event.resource, event.action, result, varying)
            fate = self._throttle.admit(family, likeness, pace, (tenant, event), now)
            if fate is not Fate.WRITTEN:
                self._metrics.audit_left_out += fate is Fate.LEFT_OUT
                return None
        return self._write(tenant, event)

    def sweep(self, now: int) -> None:
        """Tell of what was counted meanwhile; a few times a second."""
        for (tenant, first), count, last in self._throttle.ended(now):
            self._write_count(tenant, first, count, last)
        if not 0 <= now - self._told_left_out < WINDOW:
            self._told_left_out = now
            self._write_left_out(now)

    def flush(self) -> None:
        """The same for all that is counted and not told yet, before the log is closed."""
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
            # Not bounded by the number of topics: there is one for each tenant that has anything.
            scope = Scope(tenant, DEFAULT_SCOPE.namespace)
            created = TopicCreated(state.next_topic_id, *scope, TOPIC, 1, self._settings, self._clock())
            events, number = [created], created.id
        else:
            number = topic.id
            if topic.settings != self._settings:
                events = [TopicSettingsChanged(number, self._settings)]
        before = state.chains.get(number, audit_chain.GENESIS)
        link = audit_chain.link(before, document)
        self._links.setdefault(number, state.chains.get(number))  # nobody else makes any, so this one is committed
        headers = (audit_chain.header(before, link),)
        records = (Records(partition_id(number, 0), (document,), headers=headers),)
        chained = (*events, AuditChained(number, link))
        group = self._state_log.append(records, chained, shown=bool(events)).group  # a login does not wait for its note
        group.on_done(lambda group: self._done(group, number, link))
        self._last = group
        return group

    @property
    def pending_commit(self) -> CommitGroup | None:
        """The group to wait for before something is shown that must not be seen without a trace."""
        return self._last if self._last is not None and self._last.state is not GroupState.COMMITTED else None

    def _done(self, group: CommitGroup, topic: int, link: bytes) -> None:
        if group.state is GroupState.FAILED:
            self._metrics.audit_lost += 1
        else:
            self._links[topic] = link

    # -- reading

    def query(self, identity: Identity, tenant: str, query: AuditQuery) -> Deferred[AuditPage, AuditPage]:
        """The events of the tenant that fit the query, newest first; all that were noted before, once they are
        committed."""
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
        """All that fits the query, newest first, as one document: "json" or "csv". LimitReached if it is too large."""
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
        """Check that the tenant's log is as it was written; only what is committed, from the oldest event that is kept.
        With `max_count`, so many events of it: then the report has a `mark`, from which to go on."""
        self._access.require(identity, Permission.AUDIT, Scope(scope.tenant, "*"), "")
        if _topic(self._state_log.current(), scope.tenant) is None and not self.policy.enabled:
            raise AuditOff
        return self._deferred(lambda: self._verification(scope.tenant, mark, max_count))

    def _verification(self, tenant: str, mark: ChainMark | None, max_count: int | None) -> Callable[[], ChainReport]:
        state, engine = self._state_log.current(), self._state_log.engine
        topic = _topic(state, tenant)
        partition = partition_id(0 if topic is None else topic.id, 0)
        first, end = (0, 0) if topic is None else engine.bounds(partition)
        if mark is None or mark.offset < first:  # retention may have gone on since
            mark = ChainMark(first)
        stop = end if max_count is None else min(end, mark.offset + max(1, max_count))
        number = 0 if topic is None else topic.id
        remembered = self._links.get(number, state.chains.get(number))
        check = audit_chain.Check(mark, whole=first == 0, remembered=remembered)
        plans = [
            engine.read(partition, offset, STEP_BYTES, min(STEP_RECORDS, stop - offset))
            for offset in range(mark.offset, stop, STEP_RECORDS)
        ]

        def follow() -> ChainReport:
            for part in (part for plan in plans for part in plan.run()):
                time.sleep(0)  # the event loop may have the interpreter
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
        """Work that is planned when all that was noted before is committed."""
        return Deferred(_unplanned, lambda found: found, executor=self._executor, plan=plan, after=self._last)


def _unplanned() -> Never:
    raise AssertionError("the plan has the work")


class Attempt:
    """An administrative operation: if it fails, that is noted with the reason, and the error goes on. An attempt inside
    another one is a part of that: what counts is how the whole ends, and the innermost knows best what it was. Nothing
    of it may wait for anything."""

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
    """In whose log it belongs. What was refused to somebody of one tenant is in the log of that tenant, so that nobody
    can fill that of another. Only what happened makes a log for a tenant that has nothing yet: a name that a client
    invented does not."""
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
    """A search: made on the broker's thread, carried out on any. First everything is looked at and counted, then what
    is wanted is read again: so it holds one step in memory, however much fits the query."""

    def __init__(self, engine: Engine, topic: int | None, query: AuditQuery) -> None:
        self._engine = engine
        self._partition = partition_id(topic or 0, 0)
        self._prefix = f"{topic}-"  # of the events' ids; their offset comes behind it
        self._start = min(query.start, MAX_TIME) * 1000
        self._fits = audit_event.matcher(query)
        first, end = (0, 0) if topic is None else engine.bounds(self._partition)
        self._plans = [
            (offset, engine.read(self._partition, offset, STEP_BYTES, min(STEP_RECORDS, end - offset)))
            for offset in range(first, end, STEP_RECORDS)
        ]
        self._found: list[tuple[ReadPlan, array[int]]] = []  # which records of each plan fit

    def count(self) -> int:
        """Look at everything that is not too old, and say how much fits."""
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
                time.sleep(0)  # the event loop may have the interpreter
        return fitting

    def events(self, skip: int, max_count: int) -> Iterator[AuditEvent]:
        """The events that fit, newest first, after `count`."""
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
