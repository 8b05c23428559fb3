"""The chain of the audit log: it holds across restarts, failed writes and retention, and tampering shows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture, later

from penstock.broker.errors import AccessDenied, AuditOff
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security import audit, audit_chain, audit_event
from penstock.broker.security.access import Access, AccessPolicy, Grant, Identity, Permission
from penstock.broker.security.audit import TOPIC
from penstock.broker.security.audit_chain import GENESIS, HEADER, ChainCheck, ChainMark, ChainReport
from penstock.broker.security.audit_event import AuditPolicy, AuditQuery
from penstock.broker.state.events import TopicCreated
from penstock.broker.state.state import decode_snapshot, encode_snapshot
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.batch import Headers
from penstock.log.engine import Records, partition_id
from penstock.log.file_engine import LogSettings

ADMIN = Identity("admin", peer="10.1.2.3:4567")
ACME = Scope("acme", "default")
GRANTS = [
    Grant("admin", frozenset({Permission.ADMIN})),
    Grant("auditor", frozenset({Permission.AUDIT}), tenant="acme"),
]


def fixture(**options: Any) -> BrokerFixture:
    return BrokerFixture(**{"access": Access(True, GRANTS), "audit": AuditPolicy(enabled=True), **options})


def note(one: BrokerFixture, *names: str, scope: Scope = DEFAULT_SCOPE) -> None:
    for name in names:
        one.broker.audit.note(ADMIN, "topic.create", scope=scope, resource=name)
    one.commit()


def verify(one: BrokerFixture, scope: Scope = DEFAULT_SCOPE, **options: Any) -> ChainReport:
    work = one.broker.audit.verify(ADMIN, scope, **options)
    work.run()
    return work.finish()


def stored(one: BrokerFixture, scope: Scope = DEFAULT_SCOPE) -> tuple[list[bytes], list[Headers]]:
    topic = one.broker.state_log.current().topics[scope][TOPIC]
    partition = partition_id(topic.id, 0)
    parts = one.engine.read(partition, one.engine.bounds(partition).start, 1 << 20, 10_000).run()
    return [value for part in parts for value in part.values()], [one for part in parts for one in part.headers()]


def test_every_event_carries_the_hash_of_all_before_it_and_itself() -> None:
    one = fixture()
    note(one, "a", "b", "c")
    documents, headers = stored(one)
    before = bytes(32)
    for document, ((name, value),) in zip(documents, headers, strict=True):
        own = hashlib.sha256(before + document).digest()
        assert (name, value) == (HEADER, before + own)
        before = own
    report = verify(one)
    assert (report.ok, report.event_count, report.mismatch, report.mark) == (True, 3, None, None)
    assert report.head == before.hex() and "3 events, 3 of them chained" in report.text


def test_an_empty_log_is_in_order_and_none_is_told_of() -> None:
    assert verify(fixture()) == ChainReport(
        True, 0, "", None, "0 events, 0 of them chained: nothing was changed or removed"
    )
    with pytest.raises(AuditOff):
        BrokerFixture(access=AccessPolicy(True, GRANTS)).broker.audit.verify(ADMIN, DEFAULT_SCOPE)


def test_the_chain_goes_on_after_a_restart_and_from_a_snapshot() -> None:
    one = fixture()
    note(one, "a", "b")
    head = verify(one).head
    one.restart()
    assert verify(one).head == head
    note(one, "c")
    state = one.broker.state_log.state
    assert decode_snapshot(encode_snapshot(state)).chains == state.chains != {}
    one.restart()
    note(one, "d")
    assert (verify(one).ok, verify(one).event_count) == (True, 4)


def test_each_tenant_has_a_chain_of_its_own() -> None:
    one = fixture()
    note(one, "a", "b")
    note(one, "x", scope=ACME)
    assert (verify(one).event_count, verify(one, ACME).event_count) == (2, 1)
    assert stored(one, ACME)[1][0][0][1].startswith(GENESIS)


def test_events_of_a_group_that_failed_are_no_part_of_the_chain() -> None:
    one = fixture()
    note(one, "a")
    fault = one.fill_disk()
    note(one, "lost", "lost too")
    one.free_disk(fault)
    assert (verify(one).ok, verify(one).event_count) == (True, 1)
    note(one, "b", "c")
    one.restart()
    note(one, "d")
    report = verify(one)
    assert (report.ok, report.event_count) == (True, 4) and "4 of them chained" in report.text


def test_what_is_not_committed_yet_is_not_missed() -> None:
    one = fixture()
    note(one, "a")
    one.broker.audit.note(ADMIN, "topic.create", resource="b")
    assert (verify(one).ok, verify(one).event_count) == (True, 1)
    one.restart()
    one.broker.audit.note(ADMIN, "topic.create", resource="c")
    assert (verify(one).ok, verify(one).event_count) == (True, 1)


def test_nobody_waits_for_the_note_that_they_came_in() -> None:
    one = fixture()
    note(one, "a")
    one.broker.audit.note(ADMIN, "auth.success", action="password")
    assert one.broker.pending_commit is None
    group = one.broker.topics.create(ADMIN, DEFAULT_SCOPE, "orders", 1)[1]
    one.broker.audit.note(ADMIN, "auth.success", action="key")
    assert one.broker.pending_commit is group  # for what they see they do
    one.commit()
    assert one.broker.pending_commit is None and verify(one).event_count == 4


def append(one: BrokerFixture, documents: Sequence[bytes], headers: Sequence[Headers] | None = None) -> None:
    """Past the module that alone writes there, as who can write to the files could."""
    topic = one.broker.state_log.current().topics[DEFAULT_SCOPE][TOPIC]
    one.engine.append((Records(partition_id(topic.id, 0), documents, headers=headers),))
    one.commit()


def test_a_log_from_before_there_was_a_chain_gets_one_from_here_on() -> None:
    one = fixture()
    settings = TopicSettings(retention_seconds=1e6)
    one.broker.state_log.commit((TopicCreated(1, *DEFAULT_SCOPE, TOPIC, 1, settings, one.now),))
    append(one, [b"{}", b"{}"])
    assert (verify(one).ok, verify(one).head) == (True, "")
    note(one, "a", "b")
    report = verify(one)
    assert (report.ok, report.event_count) == (True, 4) and "2 of them chained" in report.text
    append(one, [b"{}"])
    report = verify(one)
    assert (report.ok, report.mismatch) == (False, 4) and "lost its link" in report.text


Record = tuple[bytes, Headers]


def chained(count: int, before: bytes = GENESIS) -> list[Record]:
    records: list[Record] = []
    for number in range(count):
        document = b"event %d" % number
        own = audit_chain.link(before, document)
        records.append((document, audit_chain.header(before, own)))
        before = own
    return records


def checked(records: Sequence[Record], start: int = 0, remembered: bytes | None = None) -> ChainReport:
    check = ChainCheck(ChainMark(start), whole=start == 0, remembered=remembered)
    check.take(start, [document for document, _ in records], [headers for _, headers in records])
    return check.report(start, start + len(records), over=True)


def own(record: Record) -> bytes:
    found = audit_chain.links(record[1])
    assert found is not None
    return found.own


def forged_chain(count: int) -> list[Record]:
    """One that holds, and is not that of the log."""
    first = b"forged"
    link = audit_chain.link(GENESIS, first)
    return [(first, audit_chain.header(GENESIS, link)), *chained(count - 1, link)]


TAMPERED: dict[str, tuple[Callable[[list[Record]], list[Record]], int, str]] = {
    "changed": (lambda r: [*r[:2], (b"forged", r[2][1]), *r[3:]], 2, "was changed"),
    "the oldest changed": (lambda r: [(b"forged", r[0][1]), *r[1:]], 0, "was changed"),
    "the newest changed": (lambda r: [*r[:-1], (b"forged", r[-1][1])], 4, "was changed"),
    "changed, with a fitting link": (
        lambda r: [*r[:2], *chained(1, own(r[1])), *r[3:]], 3, "does not follow the one before it"),
    "removed": (lambda r: [*r[:2], *r[3:]], 2, "does not follow"),
    "swapped": (lambda r: [r[0], r[2], r[1], *r[3:]], 1, "does not follow"),
    "put in between": (lambda r: [*r[:2], *chained(1), *r[2:]], 2, "does not follow"),
    "repeated": (lambda r: [*r[:2], r[1], *r[2:]], 2, "does not follow"),
    "the oldest removed": (lambda r: r[1:], 0, "is not the first of its chain"),
    "the link removed": (lambda r: [*r[:2], (r[2][0], ()), *r[3:]], 2, "has lost its link"),
    "links removed from the front": (lambda r: [(r[0][0], ()), *r[1:]], 1, "is not the first of its chain"),
    "half a link": (lambda r: [*r[:2], (r[2][0], ((HEADER, bytes(32)),)), *r[3:]], 2, "has lost its link"),
    "the newest removed": (lambda r: r[:-1], 4, "the newest events are missing"),
    "another chain altogether": (lambda _: forged_chain(2), 2, "newest events are missing"),
}  # fmt: skip


@pytest.mark.parametrize("how", TAMPERED)
def test_what_was_tampered_with_is_found_and_where(how: str) -> None:
    records = chained(5)
    remembered = own(records[-1])
    assert checked(records, remembered=remembered).ok
    tamper, index, text = TAMPERED[how]
    report = checked(tamper(records), remembered=remembered)
    assert (report.ok, report.mismatch) == (False, index) and text in report.text


def test_what_retention_has_removed_is_not_missed_and_the_oldest_left_is_checked() -> None:
    records = chained(9)[4:]
    assert checked(records, start=4).ok
    report = checked([(b"forged", records[0][1]), *records[1:]], start=4)
    assert (report.ok, report.mismatch) == (False, 0)


def test_retention_on_a_real_log() -> None:
    one = fixture(settings=LogSettings(file_bytes=64 << 10), audit=AuditPolicy(enabled=True, seconds=60, bytes=1 << 30))
    for _ in range(6):
        note(one, *[f"topic-{number}" for number in range(100)])
        one.pass_time(30)
        one.broker.maintain(one.now)
    report = verify(one)
    assert report.start > 0 and report.ok and report.event_count == report.end - report.start
    one.restart()
    assert verify(one).ok


def test_a_gap_between_records_is_one() -> None:
    check = ChainCheck(ChainMark(0), whole=True, remembered=None)
    (a, b) = chained(2)
    assert check.take(0, [a[0]], [a[1]]) and not check.take(2, [b[0]], [b[1]])
    assert "from offset 1 to 1 are missing" in check.report(0, 3, over=True).text
    check = ChainCheck(ChainMark(0), whole=True, remembered=None)
    check.take(0, [a[0]], [a[1]])
    assert "from offset 1 to 2 are missing" in check.report(0, 3, over=True).text


def test_a_forged_record_shows_in_the_log_itself() -> None:
    one = fixture()
    note(one, "a", "b")
    append(one, [b'{"forged":1}'], [audit_chain.header(GENESIS, audit_chain.link(GENESIS, b'{"forged":1}'))])
    report = verify(one)
    assert (report.ok, report.mismatch, report.event_count) == (False, 2, 2) and "does not follow" in report.text


def test_a_long_log_is_verified_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "STEP_RECORDS", 3)
    one = fixture()
    note(one, *[str(number) for number in range(10)])
    whole = verify(one)
    mark, pieces = None, 0
    while True:
        report = verify(one, mark=mark, max_count=4)
        pieces += 1
        mark = report.mark
        if mark is None:
            break
        assert report.ok and report.event_count == 4 * pieces and (report.start, report.end) == (0, 10)
        if pieces == 2:
            note(one, "while it goes on")
    assert pieces == 3 and report.ok and report.event_count == 11 and whole.event_count == 10
    assert report.head == verify(one).head


def test_it_is_done_off_the_loop_and_only_for_who_may_see_the_log() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    one = fixture(executor=later(calls))
    note(one, "a", scope=ACME)
    found: list[ChainReport] = []
    auditor = Identity("auditor")
    work = one.broker.audit.verify(auditor, ACME)
    work.start(one.broker.executor, lambda: found.append(work.finish()))
    assert not found and len(calls) == 1
    run, done = calls.pop()
    run()
    done()
    assert found[0].ok and found[0].event_count == 1
    for who, scope in ((auditor, DEFAULT_SCOPE), (Identity("alice"), ACME)):
        with pytest.raises(AccessDenied):
            one.broker.audit.verify(who, scope)


# -- what Kimberlite asks of the log


def ask(one: BrokerFixture, **query: Any) -> list[str]:
    one.commit()
    work = one.broker.audit.query(ADMIN, "default", AuditQuery(**query))
    work.run()
    return [event.resource for event in reversed(work.finish().events)]


def test_events_are_found_by_subject_and_by_actor() -> None:
    one = fixture()
    told = audit_event.context(actor="dr@x", reason="chart", correlation_id=None)
    assert told == (("actor", "dr@x"), ("reason", "chart"))
    one.broker.audit.note(ADMIN._replace(context=told), "topic.create", resource="a")
    one.broker.audit.note(Identity("token:dr@x"), "topic.create", resource="b", subject="patient-1")
    one.broker.audit.note(ADMIN._replace(context=told), "auth.success", resource="c", reason="its own")
    one.broker.audit.note(ADMIN, "topic.delete", resource="patient-1")
    assert ask(one, actor="dr@x") == ["a", "b", "c"]
    assert ask(one, actor="admin") == ["a", "c", "patient-1"] and ask(one, actor="r@x") == []
    assert ask(one, subject="patient-1") == ["b", "patient-1"]
    assert ask(one, subject="patient-1", types=("topic.delete",)) == ["patient-1"]
    work = one.broker.audit.query(ADMIN, "default", AuditQuery(actor="dr@x"))
    work.run()
    assert [event.details.get("reason") for event in reversed(work.finish().events)] == ["chart", None, "its own"]


def test_what_a_request_says_is_in_the_events_of_what_it_does() -> None:
    one = fixture()
    who = ADMIN._replace(context=audit_event.context(actor="dr@x", reason="x" * 10_000))
    one.broker.topics.create(who, DEFAULT_SCOPE, "orders", 1)
    one.commit()
    work = one.broker.audit.query(ADMIN, "default", AuditQuery())
    work.run()
    (event,) = work.finish().events
    assert event.details["actor"] == "dr@x" and len(event.details["reason"]) == audit_event.MAX_TEXT


def test_what_clients_say_about_their_reads_is_kept_and_does_not_push_everything_else_out() -> None:
    one = fixture()
    note(one, "before")
    for number in [*range(1500), 0, 0]:
        who = ADMIN._replace(context=audit_event.context(reason=f"chart {number}"))
        one.broker.audit.note(who, "stream.read", scope=DEFAULT_SCOPE, resource="charts", action="read")
    one.pass_time(61)
    one.broker.sweep(one.now)
    one.commit()
    work = one.broker.audit.query(ADMIN, "default", AuditQuery(types=("stream",), limit=1))
    work.run()
    assert 1000 < work.finish().total <= 1003 and one.broker.metrics.audit_left_out == 500
    work = one.broker.audit.query(ADMIN, "default", AuditQuery(search="chart 0"))
    work.run()
    assert [event.details.get("count") for event in work.finish().events] == ["2", None]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (None, None, (0, None)),
        (0, 0, (0, 1)),
        (1, 999_999, (1, 1)),
        (1_000_000, 1_000_000, (1, 2)),
        (1_000_001, 1_999_999, (2, 2)),
    ],
)
def test_a_time_in_nanoseconds_with_both_ends(
    first: int | None, last: int | None, expected: tuple[int, int | None]
) -> None:
    assert audit_event.span(first, last) == expected
