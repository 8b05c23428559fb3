"""The Flight door through a real broker process, with a client that is not ours: what it gives, what it leaves out,
what it refuses, and how much it holds."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import flight
from tests.launcher import BrokerProcess
from tests.preloaded import STARTED_WORKERS
from tests.workers.flight.seeded_flight_broker import ACME, HOUR, OPEN, Maker, Seen, client, get, made, rows

from penstock.clients.rustlog import Client
from penstock.flight import wire

MIB = 1 << 20


class SeededBroker(NamedTuple):
    broker: BrokerProcess
    flight: Any
    seen: dict[str, list[Seen]]
    first_at: int  # µs: when the first record of `plain` was stored


@pytest.fixture(scope="module")
def seeded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeededBroker]:
    path = tmp_path_factory.mktemp("flight")
    with made(path) as maker:
        first_at = maker.now
        fill(maker)
        seen = {name: maker.seen(name) for name in ("plain", "gaps", "old", "lots")}
    limits = {"PENSTOCK_FLIGHT__STREAMS": "6", "PENSTOCK_LIMITS__TENANT_SHARE": "1"}
    with BrokerProcess(path, *OPEN, **limits, **STARTED_WORKERS) as broker:
        yield SeededBroker(broker.ready(), client(broker), seen, first_at)


def fill(maker: Maker) -> None:
    maker.topic("plain", 2)
    for number in range(30):
        maker.append("plain", [b"%d-%d" % (number, i) for i in range(number)] or [b""])
        maker.now += 1_000
    some = [b"v", b"", b"w"]
    maker.append("plain", some, keys=[b"k", None, b""], headers=[[("a", b"1"), ("b", b"")], [], [("c", b"\xff")]])
    maker.append("plain", [b"x" * 10 for _ in range(5_000)])  # a batch that is not copied
    maker.append("plain", [b"other"], partition=1)
    gaps = maker.topic("gaps")
    now = maker.now
    expiries = [0, now - 1, now + HOUR, now - HOUR, 0, 0, now - 1, 0, 0]
    maker.append("gaps", [b"%d" % i for i in range(9)], expires=expiries)
    maker.append("gaps", [b"later %d" % i for i in range(3_000)])
    maker.remove(gaps, [4, 1000, 3008])
    maker.topic("old", expiry_seconds=1800.0)
    maker.now -= HOUR
    maker.append("old", [b"gone"] * 3)
    maker.now += HOUR
    maker.append("old", [b"there"] * 2)
    maker.topic("large")
    for _ in range(48):
        maker.append("large", [os.urandom(MIB)])
    maker.topic("lots")
    maker.append("lots", [b"z" * 1024 for _ in range(9_000)])  # one batch
    maker.topic("empty", 3)
    maker.topic("plain", 1, ACME)
    maker.append("plain", [b"of acme"], scope=ACME)


# -- what it gives


@pytest.mark.parametrize("topic", ["plain", "gaps", "old", "lots"])
def test_records_are_those_that_a_fetch_gives(seeded_broker: SeededBroker, topic: str) -> None:
    assert rows(get(seeded_broker.flight, topic).read_all()) == seeded_broker.seen[topic]
    assert len(seeded_broker.seen[topic]) > 1


def test_records_are_those_of_another_door(seeded_broker: SeededBroker) -> None:
    with Client(*seeded_broker.broker.endpoint("rustlog")) as other:
        fetched = other.fetch("gaps", 0, 0, 1 << 20).records
    found = rows(get(seeded_broker.flight, "gaps", end=fetched[-1].offset + 1).read_all())
    assert [(seen.offset, seen.value) for seen in found] == [(one.offset, one.payload) for one in fetched]
    assert [seen.offset for seen in found[:6]] == [0, 2, 5, 7, 8, 9]  # 1, 3, 6 have expired, 4 was removed


def test_every_range_and_any_columns(seeded_broker: SeededBroker) -> None:
    everything = seeded_broker.seen["plain"]
    for start, end in ((0, 1), (3, 3), (17, 432), (len(everything) - 1, len(everything)), (400, 3_000)):
        assert rows(get(seeded_broker.flight, "plain", start=start, end=end).read_all()) == everything[start:end]
    table = get(
        seeded_broker.flight, "plain", columns=["position", "offset", "partition", "topic"], start=5, end=8
    ).read_all()
    assert table.column_names == ["position", "offset", "partition", "topic"]
    assert table["topic"].to_pylist() == ["plain"] * 3 and table["partition"].to_pylist() == [0] * 3
    positions = table["position"].to_pylist()
    assert positions == sorted(positions)
    only = get(seeded_broker.flight, "gaps", columns=["expires"], start=2, end=6).read_all()
    assert only.column_names == ["expires"] and [at is None for at in only["expires"].to_pylist()] == [False, True]


def test_topics_are_flights_and_partitions_are_endpoints(seeded_broker: SeededBroker) -> None:
    names = ["empty", "gaps", "large", "lots", "old", "plain"]
    assert [info.descriptor.path for info in seeded_broker.flight.list_flights()] == [[name.encode()] for name in names]
    assert [info.descriptor.path[0] for info in seeded_broker.flight.list_flights(b"pl")] == [b"plain"]
    info = seeded_broker.flight.get_flight_info(flight.FlightDescriptor.for_path("plain"))
    tables = [seeded_broker.flight.do_get(end.ticket).read_all() for end in info.endpoints]
    assert [len(table) for table in tables] == [len(seeded_broker.seen["plain"]), 1]
    assert info.total_records == len(seeded_broker.seen["plain"]) + 1 and info.schema == tables[0].schema
    by_command = flight.FlightDescriptor.for_command(b'{"topic": "plain", "columns": ["value"]}')
    assert seeded_broker.flight.get_schema(by_command).schema == pa.schema([("value", pa.binary())])
    narrow = seeded_broker.flight.get_flight_info(by_command)
    assert seeded_broker.flight.do_get(narrow.endpoints[1].ticket).read_all().to_pylist() == [{"value": b"other"}]
    empty = seeded_broker.flight.get_flight_info(flight.FlightDescriptor.for_path("empty"))
    assert [len(seeded_broker.flight.do_get(end.ticket).read_all()) for end in empty.endpoints] == [0, 0, 0]


def act(connection: Any, name: str, options: Any = None, **body: Any) -> Any:
    (result,) = connection.do_action(flight.Action(name, json.dumps(body).encode()), options)
    return json.loads(result.body.to_pybytes())


def test_actions_tell_about_the_log(seeded_broker: SeededBroker) -> None:
    assert {action.type for action in seeded_broker.flight.list_actions()} == set(wire.ACTIONS)
    end = len(seeded_broker.seen["plain"])
    assert act(seeded_broker.flight, "topics")["topics"]["plain"] == 2
    assert act(seeded_broker.flight, "bounds", topics=["plain", "missing"])["bounds"] == [
        {"topic": "plain", "partition": 0, "start": 0, "end": end},
        {"topic": "plain", "partition": 1, "start": 0, "end": 1},
    ]
    moments = [0, seeded_broker.first_at + 2_500, seeded_broker.first_at + HOUR]
    at = [{"topic": "plain", "partition": 0, "timestamp": moment} for moment in moments]
    young = next(seen.offset for seen in seeded_broker.seen["plain"] if seen.timestamp >= moments[1])
    assert act(seeded_broker.flight, "offsets-at", at=at)["offsets"] == [0, young, None] and young == 4
    both = [{"topic": "large", "partition": 0, "start": 8, "end": 48}]
    (reached,) = act(seeded_broker.flight, "fitting", ranges=both, max_bytes=10 * MIB)["ends"]
    assert 16 <= reached <= 18
    assert act(seeded_broker.flight, "fitting", ranges=both, max_bytes=1)["ends"] == [9]
    assert act(seeded_broker.flight, "table", topic="empty") == {"table": None}


def test_a_group_s_offsets_can_be_kept(seeded_broker: SeededBroker) -> None:
    act(seeded_broker.flight, "commit-offsets", group="g", offsets=[{"topic": "plain", "partition": 0, "offset": 7}])
    with Client(*seeded_broker.broker.endpoint("rustlog")) as other:
        assert other.fetch_offset("g", "plain", 0) == 7


def test_another_tenant_has_its_own_topics(seeded_broker: SeededBroker) -> None:
    options = header(b"x-penstock-tenant", b"acme")
    assert act(seeded_broker.flight, "topics", options) == {"topics": {"plain": 1}}
    assert get(seeded_broker.flight, "plain", options=options).read_all()["value"].to_pylist() == [b"of acme"]


def query(connection: Any, sql: str, options: Any = None, **more: Any) -> Any:
    return connection.do_get(flight.Ticket(json.dumps({"sql": sql, **more})), options).read_all()


def test_a_query_gives_rows_and_the_position_up_to_which_they_are_true(seeded_broker: SeededBroker) -> None:
    connection = seeded_broker.flight
    found = query(connection, "SELECT count(*) AS n, max(offset) AS last FROM lots WHERE offset >= $1", params=[10])
    assert found.to_pylist() == [{"n": 8_990, "last": 8_999}]
    assert found.schema.metadata[b"penstock.stale"] == b"false"
    now = int(found.schema.metadata[b"penstock.position"])
    times = query(connection, "SELECT timestamp FROM plain LIMIT 1")
    assert pa.types.is_timestamp(times.schema.field(0).type)
    past = query(connection, "SELECT count(*) AS n FROM plain", position=5)
    assert past.to_pylist()[0]["n"] < len(seeded_broker.seen["plain"])
    assert past.schema.metadata[b"penstock.position"] == b"5"
    acme = header(b"x-penstock-tenant", b"acme")
    assert query(connection, "SELECT count(*) AS n FROM plain", acme).to_pylist() == [{"n": 1}]
    for sql, said in (
        ("INSERT INTO plain (id) VALUES (1)", "Only queries are answered here"),
        ("CREATE TABLE new (id BIGINT)", "Only queries are answered here"),
        ("SELECT * FROM missing", "not found"),
        ("SELECT (", "Not SQL"),
    ):
        refused(partial(query, connection, sql), pa.ArrowInvalid, said)
    refused(partial(query, connection, "SELECT 1", position=now + 1), pa.ArrowInvalid, str(now + 1))
    refused(partial(query, connection, "SELECT 1", topic="plain"), pa.ArrowInvalid, "unknown field `topic`")


# -- what it refuses


def refused(call: Callable[[], Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as error:
        call()
    assert said in str(error.value)
    assert "Traceback" not in str(error.value) and ".py" not in str(error.value)


@pytest.mark.parametrize(
    ("ticket", "kind", "said"),
    [
        (b"", pa.ArrowInvalid, "missing required field"),
        (b"\xff\xfe", pa.ArrowInvalid, "cannot be understood"),
        (b"[" * 5_000, pa.ArrowInvalid, "cannot be understood"),
        (b" " * 2_000_000, pa.ArrowInvalid, "2000000 bytes"),
        (b'{"topic": "plain", "start": -1}', pa.ArrowInvalid, ">= 0"),
        (b'{"topic": "plain", "start": 99999999999999999999}', pa.ArrowInvalid, "cannot be understood"),
        (b'{"topic": "plain", "partition": 4294967296}', pa.ArrowInvalid, "cannot be understood"),
        (b'{"topic": "plain", "end": 4000000000000000000}', pa.ArrowInvalid, "ends at offset"),
        (b'{"topic": "plain", "columns": ["value", "value"]}', pa.ArrowInvalid, "twice"),
        (b'{"topic": "plain", "columns": ["nothing"]}', pa.ArrowInvalid, "the columns are key, value"),
        (b'{"topic": "plain", "columns": []}', pa.ArrowInvalid, "cannot be understood"),
        (b'{"topic": "plain", "colums": ["value"]}', pa.ArrowInvalid, "unknown field `colums`"),
        (b'{"topic": "plain", "partition": 2}', pa.ArrowKeyError, "Partition 2 not found"),
        (b'{"topic": "../plain"}', pa.ArrowKeyError, "not found"),
    ],
)
def test_tickets_that_mean_nothing(
    seeded_broker: SeededBroker, ticket: bytes, kind: type[Exception], said: str
) -> None:
    refused(lambda: seeded_broker.flight.do_get(flight.Ticket(ticket)).read_all(), kind, said)


def test_descriptors_actions_and_headers_that_mean_nothing(seeded_broker: SeededBroker) -> None:
    plain = seeded_broker.flight
    path = flight.FlightDescriptor.for_path
    refused(lambda: plain.get_flight_info(path("a", "b")), pa.ArrowInvalid, "one part")
    refused(lambda: plain.get_flight_info(path("nowhere")), pa.ArrowKeyError, "'nowhere' not found")
    refused(lambda: plain.get_schema(flight.FlightDescriptor.for_command(b"}")), pa.ArrowInvalid, "the command")
    refused(lambda: list(plain.do_action("explode")), pa.ArrowInvalid, "no action 'explode'")
    refused(lambda: list(plain.do_action(("bounds", b"null"))), pa.ArrowInvalid, "cannot be understood")
    refused(lambda: list(plain.do_action(("bounds", b"x" * 2_000_000))), pa.ArrowInvalid, "2000000 bytes")
    refused(lambda: act(plain, "schema", subject="none"), pa.ArrowKeyError, "Schema 'none' not found")
    refused(lambda: act(plain, "fitting", ranges=[], max_bytes=0), pa.ArrowInvalid, ">= 1")
    for name, value in ((b"x-penstock-tenant", b"../x"), (b"x-penstock-namespace", b"a b")):
        refused(lambda: act(plain, "topics", header(name, value)), pa.ArrowInvalid, "name '")  # noqa: B023
    for value in (b"Basic !!", b"Digest x", b"Basic " + b"/w==", b"Basic eA=="):
        said = "authorization header"
        call = partial(act, plain, "topics", header(b"authorization", value))
        refused(call, flight.FlightUnauthenticatedError, said)


@pytest.mark.parametrize(
    ("command", "columns", "said"),
    [
        (b"", {"value": ["x"]}, "topic"),
        (b"}", {"value": ["x"]}, "the command"),
        (b'{"topic": "plain", "app": ""}', {"value": ["x"]}, "the command"),
        (b'{"topic": "plain"}', {"values": ["x"]}, "value"),
        (b'{"topic": "plain"}', {"value": [1]}, "value"),
        (b'{"topic": "plain"}', {"value": [None]}, "value"),
        (b'{"topic": "plain"}', {"value": ["x"], "partition": [2]}, "artition"),
        (b'{"topic": "plain"}', {"value": ["x"], "headers": [[{"a": 1}]]}, "headers"),
        (b'{"topic": "a\\u0000b"}', {"value": ["x"]}, "name"),
    ],
)
def test_puts_that_mean_nothing_leave_nothing(
    seeded_broker: SeededBroker, command: bytes, columns: dict[str, list[Any]], said: str
) -> None:
    table = pa.table(columns)

    def send() -> None:
        writer, answers = seeded_broker.flight.do_put(flight.FlightDescriptor.for_command(command), table.schema)
        try:
            writer.write_table(table)
            writer.done_writing()
            answers.read()
        finally:
            writer.close()

    refused(send, pa.ArrowKeyError if "partition" in columns else pa.ArrowInvalid, said)
    assert act(seeded_broker.flight, "bounds", topics=["plain"])["bounds"][1]["end"] == 1


def header(name: bytes, value: bytes) -> Any:
    return flight.FlightCallOptions(headers=[(name, value)])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    action=st.sampled_from(sorted(wire.ACTIONS)),
    body=st.one_of(
        st.binary(max_size=100),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(["plain", "topics", "at", "ranges"]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["topics", "at", "topic", "app", "batch", "refs", "group"]), inner)
            ),
        ).map(lambda value: json.dumps(value).encode()),
    ),
)
def test_any_body_gets_an_answer_or_a_plain_refusal(seeded_broker: SeededBroker, action: str, body: bytes) -> None:
    try:
        list(seeded_broker.flight.do_action(flight.Action(action, body)))
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        assert "Traceback" not in str(error) and '"error"' in str(error)


# -- how much it holds


def flight_process_of(broker: BrokerProcess) -> int:
    """The process that serves Flight."""
    children = Path(f"/proc/{broker.process.pid}/task/{broker.process.pid}/children").read_text().split()
    (found,) = [int(pid) for pid in children if b"workers.flight.main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


def resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def test_no_batch_is_large_unless_a_record_is(seeded_broker: SeededBroker) -> None:
    assert max(chunk.data.nbytes for chunk in get(seeded_broker.flight, "lots", columns=["value"])) <= 4 * MIB
    sizes = [chunk.data.nbytes for chunk in get(seeded_broker.flight, "large", columns=["value"])]
    assert sum(sizes) > 48 * MIB and max(sizes) <= 5 * MIB


def test_clients_that_do_not_read_cost_little_and_hold_up_nobody(seeded_broker: SeededBroker) -> None:
    pid = flight_process_of(seeded_broker.broker)
    get(seeded_broker.flight, "large").read_all()
    before = resident(pid)
    connections = [client(seeded_broker.broker) for _ in range(4)]
    streams = [get(connection, "large") for connection in connections]
    for stream in streams:
        stream.read_chunk()
    time.sleep(0.3)
    grown = resident(pid) - before
    assert rows(get(seeded_broker.flight, "old").read_all()) == seeded_broker.seen["old"]
    assert sum(len(chunk.data) for chunk in streams[0]) > 0  # it goes on where it stopped
    for stream in streams:
        stream.cancel()
    assert grown < 4 * 24 * MIB  # of 4 × 48 that they asked for


def test_there_are_so_many_streams_and_a_place_is_free_again_when_one_ends(seeded_broker: SeededBroker) -> None:
    streams = [get(client(seeded_broker.broker), "large") for _ in range(6)]
    for stream in streams:
        stream.read_chunk()

    def call() -> Any:
        return get(seeded_broker.flight, "plain").read_all()

    refused(call, flight.FlightUnavailableError, "6 streams are open")
    assert act(seeded_broker.flight, "topics")["topics"]
    streams[0].cancel()
    within(5, lambda: len(call()))
    for stream in streams:
        stream.cancel()


def within(seconds: float, call: Callable[[], Any]) -> Any:
    end = time.monotonic() + seconds
    while True:
        try:
            return call()
        except flight.FlightUnavailableError:
            assert time.monotonic() < end
            time.sleep(0.02)


def test_a_deadline_ends_a_stream(seeded_broker: SeededBroker) -> None:
    options = flight.FlightCallOptions(timeout=0.2)
    stream = get(seeded_broker.flight, "large", options=options)
    stream.read_chunk()
    time.sleep(0.4)
    with pytest.raises(flight.FlightTimedOutError):
        stream.read_all()
    assert within(5, lambda: len(get(seeded_broker.flight, "plain").read_all()))
