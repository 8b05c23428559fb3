"""Our Flight client and a server that does as the test says: what is tried again, where it goes on, what is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.flight.client import FlightLog
from penstock.flight.errors import (
    AccessRefused,
    FlightLogError,
    LogUnavailable,
    NotLoggedIn,
    OffsetsLost,
    OptionsUnusable,
    RequestRefused,
    TopicMissing,
)
from penstock.flight.log import TopicPartition
from penstock.flight.options import BrokerOptions

PLACE = TopicPartition("t", 0)
SCHEMA = pa.schema([("value", pa.binary()), ("offset", pa.int64())])


def rows(*offsets: int) -> Any:
    return pa.record_batch([pa.array([b"%d" % at for at in offsets]), pa.array(offsets, pa.int64())], schema=SCHEMA)


class Headers(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self) -> None:
        self.seen: list[dict[str, list[str]]] = []

    def start_call(self, info: Any, headers: Any) -> None:  # noqa: ARG002
        self.seen.append(headers)


class Scripted(flight.FlightServerBase):  # type: ignore[misc]
    """Answers are taken from the front of `script`, one for each call; the last one stays."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.asked: list[Any] = []
        self.headers = Headers()
        super().__init__("grpc://127.0.0.1:0", middleware={"headers": self.headers})

    def _next(self) -> Any:
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def do_action(self, context: Any, action: Any) -> list[bytes]:  # noqa: ARG002
        self.asked.append((action.type, json.loads(action.body.to_pybytes())))
        answer = self._next()
        if isinstance(answer, Exception):
            raise answer
        return [json.dumps(answer).encode()]

    def do_get(self, context: Any, ticket: Any) -> Any:  # noqa: ARG002
        self.asked.append(json.loads(ticket.ticket))
        parts = self._next()

        def stream() -> Iterator[Any]:
            for part in parts:
                if isinstance(part, Exception):
                    raise part
                yield part

        return flight.GeneratorStream(SCHEMA, stream())


@pytest.fixture
def scripted() -> Iterator[Callable[..., tuple[Scripted, FlightLog]]]:
    servers: list[Scripted] = []

    def start(*script: Any, **options: Any) -> tuple[Scripted, FlightLog]:
        server = Scripted(*script)
        servers.append(server)
        given = {"servers": (("127.0.0.1", server.port),), "scope": DEFAULT_SCOPE, **options}
        return server, FlightLog(BrokerOptions(**given), retries=3, retry_seconds=0.001)

    yield start
    for server in servers:
        server.shutdown()


def down(text: str = "down") -> Any:
    return flight.FlightUnavailableError(text, b'{"error":"LogFull"}')


def test_what_nobody_could_answer_is_asked_again_and_no_more_often_than_allowed(scripted: Any) -> None:
    server, log = scripted(down(), down(), {"topics": {"t": 1}})
    assert log.topics() == {"t": 1} and len(server.asked) == 3
    server, log = scripted(down("the disk is full"))
    with pytest.raises(LogUnavailable, match="the disk is full"):
        log.topics()
    assert len(server.asked) == 4


def test_a_refusal_is_not_asked_again(scripted: Any) -> None:
    server, log = scripted(flight.FlightUnauthorizedError("no", b'{"error":"AccessDenied"}'))
    with pytest.raises(AccessRefused):
        log.topics()
    assert len(server.asked) == 1


def test_a_read_goes_on_behind_the_last_record_that_came(scripted: Any) -> None:
    """Offset 3 and 4 have expired, which nobody has to know."""
    server, log = scripted([rows(0, 1), rows(2), down()], [down()], [rows(5), down()], [rows(8, 9)])
    found = list(log.read(PLACE, 0, 10, ["value"]))
    assert [value for batch in found for value in batch.column("value").to_pylist()] == [
        b"0", b"1", b"2", b"5", b"8", b"9"
    ]  # fmt: skip
    assert all(batch.schema.names == ["value"] for batch in found)
    assert [ticket["start"] for ticket in server.asked] == [0, 3, 3, 6]
    assert server.asked[0] == {"topic": "t", "partition": 0, "start": 0, "end": 10, "columns": ["value", "offset"]}


def test_progress_makes_it_patient_again_and_standing_still_does_not(scripted: Any) -> None:
    server, log = scripted(*[[rows(at), down()] for at in range(20)], [rows(20)])
    assert len(list(log.read(PLACE, 0, 21, ["offset", "value"]))) == 21
    server, log = scripted([rows(0), down()], [down()])
    with pytest.raises(LogUnavailable):
        list(log.read(PLACE, 0, 5, ["value"]))
    assert len(server.asked) == 1 + 3 + 0


def test_the_next_server_is_tried_and_then_kept(scripted: Any) -> None:
    first, _ = scripted(down())
    second, _ = scripted({"topics": {}})
    servers = (("127.0.0.1", first.port), ("127.0.0.1", second.port))
    log = FlightLog(BrokerOptions(servers, DEFAULT_SCOPE), retries=3, retry_seconds=0.001)
    for _ in range(5):
        assert log.topics() == {}
    assert (len(first.asked), len(second.asked)) == (1, 5)


def plain(kind: type[Exception], text: str, detail: str) -> Exception:
    """As a Penstock server tells it: behind its text."""
    return kind(f"{text}. Detail: Python exception: {detail}")


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (plain(pa.ArrowKeyError, "Topic 't' not found", '{"error":"TopicNotFound"}'), TopicMissing, "Topic 't' not"),
        (plain(pa.ArrowInvalid, "that is wrong", '{"error":"Unusable"}'), RequestRefused, "^that is wrong$"),
        (flight.FlightUnauthenticatedError("who?", b'{"error":"NotProved"}'), NotLoggedIn, "who.*`api.key`"),
        (flight.FlightUnauthorizedError("no", b'{"error":"AccessDenied"}'), AccessRefused, "no.*grant"),
        (flight.FlightInternalError("oh", b'{"error":"Internal"}'), FlightLogError, "oh"),
        (flight.FlightUnavailableError("not Penstock"), LogUnavailable, "Is it running"),
    ],
)
def test_errors_are_told_in_words_that_say_what_to_do(
    scripted: Any, error: Exception, kind: type[Exception], said: str
) -> None:
    _, log = scripted(error)
    with pytest.raises(kind, match=said) as told:
        log.topics()
    assert type(told.value) is kind
    _, log = scripted([error])
    with pytest.raises(kind, match=said):
        list(log.read(PLACE, 0, 1, ["value"]))


def test_lost_offsets_tell_what_is_still_there(scripted: Any) -> None:
    _, log = scripted([plain(pa.ArrowInvalid, "offset 0 is gone", '{"error":"OffsetsLost","start":42}')])
    with pytest.raises(OffsetsLost) as lost:
        list(log.read(PLACE, 0, 99, ["value"]))
    assert lost.value.start == 42


def test_every_call_shows_who_asks_and_where(scripted: Any) -> None:
    server, log = scripted({"topics": {}}, scope=Scope("acme", "n"), user="ann", password="p:w")
    log.topics()
    seen = server.headers.seen[-1]
    assert seen["authorization"] == ["Basic YW5uOnA6dw=="]
    assert (seen["x-penstock-tenant"], seen["x-penstock-namespace"]) == (["acme"], ["n"])
    server, log = scripted({"topics": {}}, api_key="secret")
    log.topics()
    assert server.headers.seen[-1]["authorization"] == ["Bearer secret"]


def test_large_questions_are_asked_in_parts(scripted: Any) -> None:
    server, log = scripted({"bounds": []})
    log.bounds([f"t{number}" for number in range(2_500)])
    assert [len(body["topics"]) for _, body in server.asked] == [1000, 1000, 500]


def test_a_file_that_cannot_be_read_is_named_with_its_option() -> None:
    options = BrokerOptions((("h", 1),), DEFAULT_SCOPE, tls=True, tls_ca="/nowhere/ca.pem")
    with pytest.raises(OptionsUnusable, match=r"`tls.ca`: /nowhere/ca.pem cannot be read"):
        FlightLog(options)
