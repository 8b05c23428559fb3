"""The Flight server in this process, and a broker that the test plays: what it asks, and what it makes of answers."""

from __future__ import annotations

import contextlib
import socket
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight
from tests.workers.flight.seeded_flight_broker import get, made
from tests.workers.flight.test_flight import act

from penstock.broker.security.access import ANONYMOUS
from penstock.flight.reading import Reader
from penstock.log.files import OsFiles
from penstock.log.tailer import Tailer
from penstock.workers.flight import rpc_messages
from penstock.workers.flight import server as flight_server
from penstock.workers.flight.errors import hide_tracebacks
from penstock.workers.flight.server import FlightServer
from penstock.workers.rpc import INTERNAL, RemoteError

COUNT = 12
SIZE = 1 << 20


class Broker:
    """Answers as the test says; otherwise everybody may read topic 1."""

    def __init__(self) -> None:
        self.refusal: Exception | None = None
        self.end = COUNT
        self.table: rpc_messages.TableLocation | None = None
        self.asked: list[str] = []

    def call(self, name: str, request: Any, reply: type) -> Any:
        self.asked.append(name)
        if self.refusal is not None:
            raise self.refusal
        if name == "flight.login":
            return rpc_messages.LoggedIn(ANONYMOUS)
        assert (name, request.topic, reply) == ("flight.read_view", "t", rpc_messages.ReadViewMessage)
        parts = [rpc_messages.ReadViewPartition(0, 0, self.end, 0, [])]
        return rpc_messages.ReadViewMessage(1, "t", 1, 0, parts, self.table)


class ServerFixture:
    def __init__(self, server: Any, broker: Broker) -> None:
        self.server = server
        self.broker = broker
        self.client = flight.FlightClient(f"grpc://127.0.0.1:{server.port}")


@pytest.fixture
def fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerFixture]:
    monkeypatch.setattr(traceback, "format_exception", traceback.format_exception)  # put back afterwards
    hide_tracebacks()
    with made(tmp_path) as maker:
        assert maker.topic("t") == 1
        for _ in range(COUNT):
            maker.append("t", [bytes(SIZE)])
    broker = Broker()
    settings = rpc_messages.FlightSettings(str(tmp_path), "127.0.0.1", 0)
    reader = Reader(Tailer(OsFiles(str(tmp_path))), catch_up_seconds=0.1)
    server = FlightServer(settings, broker, reader)  # type: ignore[arg-type]
    yield ServerFixture(server, broker)
    server.shutdown()


def test_a_stream_ends_when_its_reader_may_no_longer_read(
    fixture: ServerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight_server, "RECHECK_SECONDS", 0.0)
    stream = get(fixture.client, "t")
    stream.read_chunk()
    fixture.broker.refusal = RemoteError("AccessDenied", "'x' may not read 't'")
    with pytest.raises(flight.FlightUnauthenticatedError, match="may not read"):
        stream.read_all()


def test_a_stream_asks_the_broker_once_in_a_while_only(fixture: ServerFixture) -> None:
    assert len(get(fixture.client, "t").read_all()) == COUNT
    assert fixture.broker.asked == ["flight.read_view"]


def test_committed_records_that_are_in_no_file_are_not_passed_over(fixture: ServerFixture) -> None:
    fixture.broker.end = COUNT + 1
    stream = get(fixture.client, "t")
    with pytest.raises(flight.FlightUnavailableError, match="not in a file yet"):
        stream.read_all()


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        ("Gone", flight.FlightUnavailableError),
        ("CommitFailed", flight.FlightInternalError),  # not UNAVAILABLE: many would send it again
        ("LogReadOnly", flight.FlightUnavailableError),
        ("LogFull", flight.FlightUnavailableError),
        ("TopicNotFound", pa.ArrowKeyError),
        ("InvalidName", pa.ArrowInvalid),
        ("AnythingNew", pa.ArrowInvalid),
        (INTERNAL, flight.FlightInternalError),
    ],
)
def test_what_the_broker_refuses_has_the_code_that_it_should(
    fixture: ServerFixture, kind: str, raised: type[Exception]
) -> None:
    fixture.broker.refusal = RemoteError(kind, "the broker's own words")
    with pytest.raises(raised) as told:
        get(fixture.client, "t").read_all()
    assert f'"error":"{kind}"' in str(told.value) or kind.encode() in told.value.extra_info  # type: ignore[attr-defined]
    assert ("own words" in str(told.value)) is (kind != INTERNAL)


def test_a_mistake_of_ours_is_reported_as_one_and_its_text_kept(
    fixture: ServerFixture, caplog: pytest.LogCaptureFixture
) -> None:
    fixture.broker.refusal = ZeroDivisionError("a secret of the house")
    calls: list[Callable[[], Any]] = [lambda: get(fixture.client, "t").read_all()]
    calls.append(lambda: act(fixture.client, "table", topic="t"))
    for call in calls:
        with pytest.raises(flight.FlightInternalError, match="internal error") as told:
            call()
        assert "secret" not in str(told.value)
    assert caplog.text.count("a secret of the house") >= 2
    fixture.broker.refusal = None
    assert len(get(fixture.client, "t", columns=["offset"]).read_all()) == COUNT


def test_the_keys_to_a_store_are_not_for_everybody_who_may_read(fixture: ServerFixture) -> None:
    options = {
        "AWS_SECRET_ACCESS_KEY": "s3cret",
        "region": "eu",
        "azure_storage_sas_token": "t",
        "aws_access_key_id": "i",
    }
    fixture.broker.table = rpc_messages.TableLocation("s3://bucket/t", options, {0: 5})
    found = act(fixture.client, "table", topic="t")["table"]
    assert (found["url"], found["options"]) == ("s3://bucket/t", {"region": "eu"})
    assert found["partitions"] == [{"partition": 0, "start": 0, "end": 5, "gone": []}]


def test_bytes_that_are_no_flight_harm_nobody(fixture: ServerFixture) -> None:
    with socket.create_connection(("127.0.0.1", fixture.server.port)) as raw:
        raw.settimeout(5)
        with contextlib.suppress(ConnectionError):  # closed before it had everything
            raw.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 64)
            while raw.recv(4096):
                pass
    assert len(get(fixture.client, "t", columns=["offset"]).read_all()) == COUNT
