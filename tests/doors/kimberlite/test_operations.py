"""The effects of requests: streams, events and queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture, later
from tests.doors.kimberlite.peer import TENANT, Peer

from penstock.broker import errors as core
from penstock.broker.names import Scope
from penstock.broker.queries.query import Rows, Timestamp, Value
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.doors.kimberlite.errors import TABLE, error_response
from penstock.doors.kimberlite.request_context import KimberliteSettings
from penstock.log import errors as log
from penstock.log.engine import partition_id
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite import values as wire
from penstock.wire.kimberlite.errors import OUTCOME_UNKNOWN
from penstock.wire.kimberlite.messages import DataClass, ErrorCode

SCOPE = Scope(str(TENANT), "default")
LATER = ("v2", "v3", "v4", "5a", "5b")
FIRST = ("v0.1", "seed", "seed/bincode", "seed/postcard", "v0.4")


@pytest.fixture
def peer(fixture: BrokerFixture) -> Peer:
    return Peer(fixture)


def create(name: str, data_class: DataClass = DataClass.PII, placement: m.Placement | None = None) -> m.CreateStream:
    return m.CreateStream(name, data_class, placement or m.Everywhere())


# -- streams


def test_a_stream_is_a_topic_of_its_tenant_with_its_class_and_placement(fixture: BrokerFixture, peer: Peer) -> None:
    number = peer.create("events", DataClass.FINANCIAL)
    topic = fixture.broker.topics.describe(ANONYMOUS, SCOPE, "events").topic
    assert (topic.id, topic.partitions) == (number, 1)
    assert topic.settings == TopicSettings(data_class="Financial", placement="global")


@pytest.mark.parametrize(
    ("placement", "kept"),
    [
        (m.Everywhere(), "global"),
        (m.Regional(m.UsEast1()), "region:us-east-1"),
        (m.Regional(m.ApSoutheast2()), "region:ap-southeast-2"),
        (m.Regional(m.CustomRegion("eu-central-1")), "region:eu-central-1"),
    ],
)
def test_a_placement_is_kept_as_text(fixture: BrokerFixture, peer: Peer, placement: m.Placement, kept: str) -> None:
    peer.ask(create("t", placement=placement))
    assert fixture.broker.topics.describe(ANONYMOUS, SCOPE, "t").topic.settings.placement == kept


@pytest.mark.parametrize("region", ["", "x" * 256, "a\nb"])
def test_a_region_without_a_proper_name_is_refused(peer: Peer, region: str) -> None:
    assert peer.refused(create("t", placement=m.Regional(m.CustomRegion(region)))).code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("dialect", FIRST)
def test_in_version_1_a_name_is_taken_once_and_has_letters_digits_and_underscores(
    fixture: BrokerFixture, dialect: str
) -> None:
    peer = Peer(fixture, dialect)
    number = peer.create("Events_1")
    again = peer.refused(create("Events_1", DataClass.DEIDENTIFIED))
    assert again.code == ErrorCode.STREAM_ALREADY_EXISTS and f"stream {number}" in again.message
    for name in ("", "a-b", "a b", "ä", "x" * 257, "a/b"):
        assert peer.refused(create(name, DataClass.DEIDENTIFIED)).code == ErrorCode.INVALID_REQUEST, name


@pytest.mark.parametrize("dialect", LATER)
def test_later_versions_find_a_stream_by_creating_it_again_as_it_is(fixture: BrokerFixture, dialect: str) -> None:
    peer = Peer(fixture, dialect)
    region = m.Regional(m.CustomRegion("eu"))
    made = peer.ask(create("a-b.c", DataClass.PHI, region))
    assert peer.ask(create("a-b.c", DataClass.PHI, region)) == made
    for other in (create("a-b.c", DataClass.PII, region), create("a-b.c", DataClass.PHI)):
        assert peer.refused(other).code == ErrorCode.STREAM_ALREADY_EXISTS
    assert peer.refused(create("a//b")).code == ErrorCode.INVALID_REQUEST


def test_a_topic_of_another_door_is_found_by_whoever_asks_for_nothing_to_keep_to(
    fixture: BrokerFixture, peer: Peer
) -> None:
    topic, _ = fixture.broker.topics.create(ANONYMOUS, SCOPE, "orders", 3)
    assert peer.create("orders", DataClass.PUBLIC) == topic.id
    assert peer.refused(create("orders", DataClass.PHI)).code == ErrorCode.STREAM_ALREADY_EXISTS
    regional = create("orders", DataClass.PUBLIC, m.Regional(m.UsEast1()))
    assert peer.refused(regional).code == ErrorCode.STREAM_ALREADY_EXISTS


@pytest.mark.parametrize("dialect", LATER)
def test_non_phi_and_public_are_one_class(fixture: BrokerFixture, dialect: str) -> None:
    first, later = Peer(fixture, "seed"), Peer(fixture, dialect)
    stream = first.create("old", DataClass.NON_PHI)
    assert later.create("old", DataClass.PUBLIC) == stream
    assert later.refused(create("old", DataClass.PII)).code == ErrorCode.STREAM_ALREADY_EXISTS


def test_every_partition_of_a_topic_is_a_stream(fixture: BrokerFixture, peer: Peer) -> None:
    topic, _ = fixture.broker.topics.create(ANONYMOUS, SCOPE, "orders", 3)
    second = topic.id + (1 << 32)
    assert peer.ask(m.AppendEvents(second, [b"x"], 0)) == m.AppendEventsResponse(0, 1)
    assert fixture.engine.bounds(partition_id(topic.id, 1)).high_watermark == 1
    assert peer.read(second) == m.ReadEventsResponse([b"x"], None)
    assert peer.read(topic.id) == m.ReadEventsResponse([], None)
    for number in (topic.id + (3 << 32), topic.id + 1, 0, 2**64 - 1):
        assert peer.refused(m.ReadEvents(number, 0, 100)).code == ErrorCode.STREAM_NOT_FOUND


def test_the_brokers_own_topics_are_not_to_be_created(peer: Peer) -> None:
    assert peer.refused(create("__mine")).code == ErrorCode.INVALID_REQUEST


def test_a_tenant_comes_into_being_with_its_first_stream_or_has_to_be_there(fixture: BrokerFixture, peer: Peer) -> None:
    peer.refused(create("a//b"))
    assert fixture.broker.tenants.list(ANONYMOUS) == []
    peer.create()
    assert [tenant.name for tenant in fixture.broker.tenants.list(ANONYMOUS)] == ["42"]
    strict = Peer(fixture, tenant=43, settings=KimberliteSettings(auto_create_tenants=False))
    assert strict.refused(create("t")).code == ErrorCode.TENANT_NOT_FOUND
    strict.ask(m.TenantCreate(43, "forty-three"))
    assert strict.create("t") > 0


def test_a_tenant_may_have_a_name_instead_of_its_number(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, settings=KimberliteSettings(tenants={TENANT: "default"}))
    number = peer.create()
    assert fixture.broker.topics.describe(ANONYMOUS, Scope("default", "default"), "events").topic.id == number


# -- appending


@pytest.mark.parametrize("dialect", FIRST + LATER)
def test_events_are_appended_and_read_in_every_dialect(fixture: BrokerFixture, dialect: str) -> None:
    peer = Peer(fixture, dialect)
    number = peer.create()
    assert peer.append(number, b"event1", b"event2") == m.AppendEventsResponse(0, 2)
    assert peer.append(number, b"", b"\x00\xff") == m.AppendEventsResponse(2, 2)
    assert peer.read(number) == m.ReadEventsResponse([b"event1", b"event2", b"", b"\x00\xff"], None)


@pytest.mark.parametrize("dialect", ("v0.4", *LATER))
def test_an_append_at_another_offset_than_expected_is_refused_and_changes_nothing(
    fixture: BrokerFixture, dialect: str
) -> None:
    peer = Peer(fixture, dialect)
    number = peer.create()
    peer.append(number, b"a", b"b")
    for expected in (0, 1, 3):
        refused = peer.refused(m.AppendEvents(number, [b"c"], expected))
        assert refused.code == ErrorCode.OFFSET_MISMATCH
        assert refused.message == f"offset mismatch for stream {number}: expected {expected}, actual 2"
    assert peer.append(number, b"c", expected=2) == m.AppendEventsResponse(2, 1)


@pytest.mark.parametrize("dialect", ("v0.1", "seed", "seed/postcard"))
def test_the_first_clients_append_wherever_a_stream_ends(fixture: BrokerFixture, dialect: str) -> None:
    peer = Peer(fixture, dialect)
    number = peer.create()
    replies = peer.all(*[m.AppendEvents(number, [b"x"]) for _ in range(3)])
    assert replies == [m.AppendEventsResponse(offset, 1) for offset in range(3)]


def test_a_batch_has_1_to_10000_events_and_4_mib(peer: Peer) -> None:
    number = peer.create()
    assert peer.append(number, *[b""] * 10_000).count == 10_000
    assert peer.append(number, *[bytes(1 << 20)] * 4).count == 4
    length = peer.length(number)
    for events in ([], [b""] * 10_001, [bytes(1 << 20)] * 4 + [b"x"]):
        assert peer.refused(m.AppendEvents(number, events, length)).code == ErrorCode.INVALID_REQUEST
    assert peer.length(number) == length


def test_an_event_that_does_not_fit_the_schema_refuses_the_whole_batch_with_reasons(
    fixture: BrokerFixture, peer: Peer
) -> None:
    schema = b'{"type": "object", "required": ["a"]}'
    work = fixture.broker.schemas.register(ANONYMOUS, SCOPE, "s", SchemaKind.JSON, schema)
    work.run()
    work.finish()
    for rejected in ("error", "dead-letter"):
        settings = TopicSettings(schema="s", rejected=rejected)
        topic, _ = fixture.broker.topics.create(ANONYMOUS, SCOPE, rejected, 1, settings)
        refused = peer.refused(m.AppendEvents(topic.id, [b'{"a": 1}', b"{}"], 0))
        assert refused.code == ErrorCode.INVALID_REQUEST and "missing required field: a" in refused.message
        assert peer.length(topic.id) == 0
        assert peer.append(topic.id, b'{"a": 1}').count == 1


def test_an_append_that_cannot_be_kept_is_a_storage_error(fixture: BrokerFixture, peer: Peer) -> None:
    number = peer.create()
    fixture.fill_disk()
    refused = peer.refused(m.AppendEvents(number, [b"x"], 0))
    assert (refused.code, refused.message) == (ErrorCode.STORAGE_ERROR, "no space left")


def test_appends_are_answered_when_they_are_committed_and_do_not_wait_for_each_other(
    fixture: BrokerFixture, peer: Peer
) -> None:
    number = peer.create()
    peer.feed(*[m.AppendEvents(number, [b"x" * 10_000], offset) for offset in range(5)])
    assert peer.responses() == [] and peer.session.held_bytes > 50_000
    fixture.commit()
    assert [response.payload for response in peer.responses()] == [m.AppendEventsResponse(at, 1) for at in range(5)]
    assert peer.session.held_bytes == 0


# -- reading


def test_max_bytes_is_not_exceeded_but_for_a_first_event_that_is_larger(peer: Peer) -> None:
    number = peer.create()
    peer.append(number, *[b"12345"] * 5, b"x" * 100, b"y")
    assert peer.read(number, most=0) == m.ReadEventsResponse([b"12345"], 1)
    assert peer.read(number, most=9) == m.ReadEventsResponse([b"12345"], 1)
    assert peer.read(number, most=10) == m.ReadEventsResponse([b"12345"] * 2, 2)
    assert peer.read(number, 4, most=104) == m.ReadEventsResponse([b"12345"], 5)
    assert peer.read(number, 5, most=10) == m.ReadEventsResponse([b"x" * 100], 6)
    assert peer.read(number, 6, most=10) == m.ReadEventsResponse([b"y"], None)


def test_at_the_end_there_is_nothing_and_nowhere_to_go_on(peer: Peer) -> None:
    number = peer.create()
    assert peer.read(number) == m.ReadEventsResponse([], None)
    peer.append(number, b"x")
    for offset in (1, 2, 2**40, 2**63, 2**64 - 1):
        assert peer.read(number, offset) == m.ReadEventsResponse([], None)


def test_from_version_2_on_a_reply_has_120_kib_or_one_event(fixture: BrokerFixture) -> None:
    events = [bytes([number]) * 1000 for number in range(200)]
    for dialect, most in (("5b", 120 * 1024), ("v0.4", 200_000)):
        peer = Peer(fixture, dialect, tenant=len(dialect))
        number = peer.create()
        peer.append(number, *events)
        found, at = list[bytes](), 0
        while True:
            reply = peer.read(number, at, 1 << 40)
            assert sum(map(len, reply.events)) <= most
            found += reply.events
            if reply.next_offset is None:
                break
            at = reply.next_offset
        assert found == events
    peer = Peer(fixture, tenant=7)
    number = peer.create()
    peer.append(number, b"x" * 500_000, b"y")
    assert peer.read(number) == m.ReadEventsResponse([b"x" * 500_000], 1)


def test_what_retention_removed_is_an_invalid_offset_that_says_where_the_stream_begins(
    fixture: BrokerFixture, peer: Peer
) -> None:
    number = peer.create()
    peer.append(number, b"a", b"b", b"c")
    fixture.engine.trim({partition_id(number, 0): 2})
    fixture.commit()
    refused = peer.refused(m.ReadEvents(number, 1, 100))
    assert refused.code == ErrorCode.INVALID_OFFSET and "begins at 2" in refused.message
    assert peer.read(number, 2) == m.ReadEventsResponse([b"c"], None)


def test_what_expired_is_passed_by_however_much_it_is(fixture: BrokerFixture, peer: Peer) -> None:
    number = peer.create()
    for _ in range(4):
        peer.append(number, *[b"old"] * 10_000)
    fixture.pass_time(100)
    fixture.broker.topics.change(ANONYMOUS, SCOPE, "events", TopicSettings(expiry_seconds=50))
    assert peer.read(number) == m.ReadEventsResponse([], None)
    peer.append(number, b"new")
    assert peer.read(number) == m.ReadEventsResponse([b"new"], None)


def test_a_reply_ends_before_expired_events_and_goes_on_behind_them(fixture: BrokerFixture, peer: Peer) -> None:
    """A client counts offsets from the one that it asked for: they are those of every other door."""
    number = peer.create()
    soon = fixture.now + 1
    fixture.broker.produce.append(
        ANONYMOUS, SCOPE, "events", 0, [b"0", b"1", b"2", b"3", b"4", b"5"], expires=[0, soon, soon, 0, 0, soon]
    )
    fixture.commit()
    fixture.pass_time(1)
    assert peer.read(number) == m.ReadEventsResponse([b"0"], 3)
    assert peer.read(number, 3) == m.ReadEventsResponse([b"3", b"4"], None)


def test_a_read_from_the_disk_is_off_the_loop_and_nobody_hears_of_it_if_the_client_is_gone() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    fixture = BrokerFixture()
    peer = Peer(fixture)
    number = peer.create()
    peer.append(number, b"x")
    fixture.restart()  # nothing of it is in memory now
    fixture.broker.executor = later(calls)
    peer, other = Peer(fixture), Peer(fixture)
    for each in (peer, other):
        each.feed(m.ReadEvents(number, 0, 100), m.StreamInfo(number))
        assert each.responses() == []
    other.session.lost()
    for work, done in calls:
        work()
        done()
    assert [response.payload for response in peer.responses()] == [
        m.ReadEventsResponse([b"x"], None),
        m.StreamInfoResponse(1),
    ]
    assert other.responses() == []


def test_a_stream_that_is_deleted_while_it_is_read_is_not_found() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    fixture = BrokerFixture()
    number = Peer(fixture).create()
    Peer(fixture).append(number, b"x")
    fixture.restart()
    fixture.broker.executor = later(calls)
    peer = Peer(fixture)
    peer.feed(m.ReadEvents(number, 0, 100))
    fixture.broker.topics.delete(ANONYMOUS, SCOPE, "events")
    fixture.broker.topics.create(ANONYMOUS, SCOPE, "events", 1)
    for work, done in calls:
        work()
        done()
    fixture.commit()
    (response,) = peer.responses()
    assert isinstance(response.payload, m.ErrorResponse) and response.payload.code == ErrorCode.STREAM_NOT_FOUND


def test_a_client_reads_its_own_writes_without_waiting_for_them(fixture: BrokerFixture, peer: Peer) -> None:
    number = peer.create()
    peer.feed(m.AppendEvents(number, [b"x"], 0), m.ReadEvents(number, 0, 100), m.StreamInfo(number))
    assert peer.responses() == []
    fixture.commit()
    assert [response.payload for response in peer.responses()] == [
        m.AppendEventsResponse(0, 1),
        m.ReadEventsResponse([b"x"], None),
        m.StreamInfoResponse(1),
    ]
    replies = peer.all(m.AppendEvents(number, [b"y"], 1), m.StreamInfo(number))
    assert replies == [m.AppendEventsResponse(1, 1), m.StreamInfoResponse(2)]


# -- sync


def test_sync_is_answered_when_everything_is_on_disk(fixture: BrokerFixture, peer: Peer) -> None:
    number, seen = peer.create(), list[int]()
    sync = fixture.engine.sync

    def watched() -> bool:
        seen.append(peer.length(number))
        return sync()

    fixture.engine.sync = watched  # type: ignore[method-assign]
    replies = peer.all(m.AppendEvents(number, [b"x"], 0), m.Sync())
    assert replies == [m.AppendEventsResponse(0, 1), m.SyncResponse(True)]
    assert seen == [1]  # what was appended before it is committed when it runs
    fixture.engine.sync = lambda: False  # type: ignore[method-assign]
    assert peer.refused(m.Sync()).code == ErrorCode.STORAGE_ERROR


# -- queries


class Statement:
    """A `QueryRun` that ends when the test wants."""

    def __init__(self, found: Rows | Exception) -> None:
        self.found = found
        self.cancelled = False
        self.done: Callable[[], None] | None = None

    def start(self, done: Callable[[], None]) -> None:
        self.done = done

    def finish(self) -> Rows:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def cancel(self) -> None:
        self.cancelled = True


class Queries:
    """Answers with what was prepared, at once unless it is told not to."""

    def __init__(self, *found: Rows | Exception, waits: bool = False) -> None:
        self.found = list(found)
        self.waits = waits
        self.asked: list[tuple[Any, ...]] = []
        self.statements: list[Statement] = []

    def expect(self) -> None:
        """They are always ready."""

    def run(
        self,
        identity: Any,  # noqa: ARG002 - the shape of `Queries`
        scope: Scope,
        sql: str,
        params: Sequence[Value] = (),
        position: int | None = None,
        reason: str | None = None,
    ) -> Statement:
        self.asked.append((scope, sql, list(params), position, reason))
        statement = Statement(self.found.pop(0))
        self.statements.append(statement)
        if not self.waits:
            statement.start = lambda done: done()  # type: ignore[method-assign]
        return statement


def queries(fixture: BrokerFixture, *found: Rows | Exception, waits: bool = False) -> Queries:
    fixture.broker.queries = made = Queries(*found, waits=waits)  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("dialect", FIRST + LATER)
def test_a_query_goes_to_sql_as_it_is_and_its_rows_come_back(fixture: BrokerFixture, dialect: str) -> None:
    params: list[wire.Value] = [-42, "hi", True, None, wire.Timestamp(1_700_000_000_000_000_000)]
    rows = Rows(["a", "b"], [[1, "x"], [None, False], [Timestamp(-1), 2**63 - 1]])
    asked = queries(fixture, rows, rows)
    cells: list[list[wire.Value]] = [[1, "x"], [None, False], [wire.Timestamp(-1), 2**63 - 1]]
    peer = Peer(fixture, dialect)
    assert peer.ask(m.Query("SELECT $1", params)) == m.QueryResponse(rows.columns, cells)
    assert peer.ask(m.QueryAt("SELECT 2", [], 17)) == m.QueryAtResponse(rows.columns, cells)
    assert asked.asked == [(SCOPE, "SELECT $1", params, None, None), (SCOPE, "SELECT 2", [], 17, None)]
    assert type(asked.asked[0][2][-1]) is Timestamp  # the broker's, not the wire's


def test_the_reason_for_breaking_the_glass_is_passed_on(fixture: BrokerFixture, peer: Peer) -> None:
    asked = queries(fixture, Rows([], []), Rows([], []))
    peer.all(m.Query("a", [], "emergency"), m.QueryAt("b", [], 1, "surgery"))
    assert [reason for *_, reason in asked.asked] == ["emergency", "surgery"]


def test_tables_are_asked_for_in_sql(fixture: BrokerFixture, peer: Peer) -> None:
    columns: list[list[Value]] = [["id", "BIGINT", False, True], ["t", "VARCHAR", True, False]]
    found = [
        Rows(["name", "column_count"], [["events", 4]]),
        Rows(["name", "data_type", "nullable", "primary_key"], columns),
        Rows(["name", "columns"], [["pk", "id,t"]]),
    ]
    asked = queries(fixture, *found)
    assert peer.ask(m.ListTables()) == m.ListTablesResponse([m.TableSummary("events", 4)])
    described = m.DescribeTableResponse('a"b', [m.ColumnInfo(*column) for column in columns])  # type: ignore[arg-type]
    assert peer.ask(m.DescribeTable('a"b')) == described
    assert peer.ask(m.ListIndexes("t")) == m.ListIndexesResponse([m.IndexInfo("pk", ["id", "t"])])
    assert [sql for _, sql, *_ in asked.asked] == ["SHOW TABLES", 'DESCRIBE "a""b"', 'SHOW INDEXES FROM "t"']


def test_a_statement_holds_up_the_requests_behind_it_and_ends_with_its_client(fixture: BrokerFixture) -> None:
    asked = queries(fixture, Rows(["a"], []), Rows(["a"], []), waits=True)
    peer, other = Peer(fixture), Peer(fixture)
    for each in (peer, other):
        each.feed(m.Query("SELECT", []), m.Sync())
        assert each.responses() == []
    other.session.lost()
    assert [statement.cancelled for statement in asked.statements] == [False, True]
    done = asked.statements[0].done
    assert done is not None
    done()
    assert [response.payload for response in peer.responses()] == [m.QueryResponse(["a"], []), m.SyncResponse(True)]
    assert peer.progressed == 1


@pytest.mark.parametrize("dialect", ["seed", "v0.4", "5b"])
def test_a_read_of_more_than_fits_a_frame_is_cut_whatever_the_configuration_says(dialect: str) -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture, dialect, settings=KimberliteSettings(read_bytes=16 << 20))
    stream = peer.create("events")
    events = [bytes(3_000)] * 5_591  # without their lengths they would fit
    fixture.broker.produce.append(ANONYMOUS, SCOPE, "events", 0, events)
    fixture.commit()
    found, at = 0, 0
    while found < len(events):
        reply = peer.ask(m.ReadEvents(stream, at, 16 << 20))
        assert isinstance(reply, m.ReadEventsResponse) and reply.events
        found += len(reply.events)
        at = reply.next_offset or 0
        assert at == (found if found < len(events) else 0)


def test_a_result_that_fits_no_frame_is_an_error_that_says_what_to_do(fixture: BrokerFixture, peer: Peer) -> None:
    queries(fixture, Rows(["a"], [["x" * (17 << 20)]]))
    refused = peer.refused(m.Query("SELECT", []))
    assert refused.code == ErrorCode.QUERY_EXECUTION_ERROR and "ask for less" in refused.message


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (core.QueryInvalid("syntax"), ErrorCode.QUERY_PARSE_ERROR),
        (core.QueryError("division by zero"), ErrorCode.QUERY_EXECUTION_ERROR),
        (core.QueryTooLarge("rows"), ErrorCode.QUERY_EXECUTION_ERROR),
        (core.PositionGone("gone"), ErrorCode.QUERY_EXECUTION_ERROR),
        (core.QueriesOff("off"), ErrorCode.QUERY_EXECUTION_ERROR),
        (core.TableNotFound("t"), ErrorCode.TABLE_NOT_FOUND),
        (core.TableExists("t"), ErrorCode.STREAM_ALREADY_EXISTS),
        (core.PositionAhead(9, 3), ErrorCode.POSITION_AHEAD),
        (core.DuplicateKey("id 1"), ErrorCode.UNIQUE_CONSTRAINT_VIOLATION),
        (core.TooFast("wait"), ErrorCode.RATE_LIMITED),
        (core.QuotaReached("full"), ErrorCode.RATE_LIMITED),
        (core.LimitReached("full"), ErrorCode.RATE_LIMITED),
        (core.AccessDenied("no"), ErrorCode.AUTHENTICATION_FAILED),
        (core.InvalidArgument("what"), ErrorCode.INVALID_REQUEST),
        (core.ShuttingDown(), ErrorCode.INTERNAL_ERROR),
    ],
)
def test_errors_of_a_statement_have_their_codes(fixture: BrokerFixture, error: Exception, code: ErrorCode) -> None:
    peer = Peer(fixture, settings=KimberliteSettings(assume="5b"))  # or code 29 would not be known to be understood
    queries(fixture, error)
    assert peer.refused(m.Query("SELECT", [])).code == code
    assert not peer.closed


def test_every_error_of_core_and_log_is_in_the_table_or_below_one_that_is() -> None:
    assert error_response(log.CommitFailed("EIO")) == m.ErrorResponse(ErrorCode.UNKNOWN, OUTCOME_UNKNOWN)
    assert error_response(KeyError("x")) == m.ErrorResponse(ErrorCode.INTERNAL_ERROR, "internal error")
    for kind in TABLE:
        bases = [base for base in kind.__mro__[1:] if base in TABLE]
        assert bases or kind is Exception
    long = error_response(core.InvalidArgument("x" * 5000))
    assert len(long.message) == 1024
