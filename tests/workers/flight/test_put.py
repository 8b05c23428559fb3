"""Puts, from the stream of record batches to the log: with a broker in this process, then with a real one."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight
from tests.broker.broker_fixture import BrokerFixture
from tests.launcher import BrokerProcess

from penstock.broker.errors import BrokerError
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.produce.partitioning import fnv1a
from penstock.broker.publications.staging import Staging
from penstock.broker.security.access import ANONYMOUS, AccessPolicy, Grant, Identity, Permission
from penstock.flight import wire
from penstock.log.engine import Durability
from penstock.log.errors import LogError
from penstock.workers.flight import put as flight_put
from penstock.workers.flight.callers import Caller
from penstock.workers.flight.errors import Refused, TooMany
from penstock.workers.flight.rpc_handlers import PublishHandlers
from penstock.workers.flight.rpc_messages import FlightSettings, StagingPermit
from penstock.workers.rpc import RemoteError

T = TypeVar("T")
ALICE = Caller(Identity("alice"), DEFAULT_SCOPE, anonymous=False)


class Line:
    """The line to a broker that is in this process, and commits whenever somebody waits."""

    def __init__(self, fixture: BrokerFixture) -> None:
        self.fixture = fixture
        self.called: list[str] = []

    def call(self, name: str, request: msgspec.Struct, reply: type[T]) -> T:
        self.called.append(name)
        handler = PublishHandlers(self.fixture.broker, Durability.SYNCED).handlers()[name]

        async def run() -> bytes:
            async def answer() -> bytes:
                return await handler(msgspec.msgpack.encode(request))

            task = asyncio.ensure_future(answer())
            while not task.done():
                self.fixture.commit()
                await asyncio.sleep(0)
            return await task

        try:
            return msgspec.msgpack.decode(asyncio.run(run()), type=reply)
        except (BrokerError, LogError) as error:
            raise RemoteError(type(error).__name__, str(error)) from error


class Chunk:
    def __init__(self, data: pa.RecordBatch | None) -> None:
        self.data = data


class Stream:
    """The arguments that Flight gives to `do_put`: a reader and a writer."""

    def __init__(self, batches: Sequence[pa.RecordBatch], error: Exception | None = None) -> None:
        self.schema = batches[0].schema
        self._batches = batches
        self._error = error
        self.answer: dict[str, Any] = {}

    def __iter__(self) -> Iterator[Chunk]:
        for batch in self._batches:
            yield Chunk(batch)
        yield Chunk(None)  # metadata alone
        if self._error is not None:
            raise self._error

    def write(self, data: pa.Buffer) -> None:
        self.answer = json.loads(data.to_pybytes())


@pytest.fixture
def fixture(monkeypatch: pytest.MonkeyPatch) -> BrokerFixture:
    fixture = BrokerFixture()
    monkeypatch.setattr(flight_put, "OsFiles", lambda _: fixture.disk)
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "orders", 2)
    fixture.commit()
    return fixture


def put(
    fixture: BrokerFixture, stream: Stream, *, gone: bool = False, caller: Caller = ALICE, **command: Any
) -> dict[str, Any]:
    settings = FlightSettings("/nowhere", "127.0.0.1", 0)
    line: Any = Line(fixture)
    flight_put.put(line, settings, caller, wire.PutCommand(**command), stream, stream, lambda: gone)
    return stream.answer


def records(fixture: BrokerFixture, topic: str, partition: int = 0) -> list[bytes]:
    parts = fixture.broker.fetch.plan(ANONYMOUS, DEFAULT_SCOPE, topic, partition, 0, 1 << 20, 1 << 20).run()
    return [value for part in parts for value in part.values()]


def staged(fixture: BrokerFixture) -> list[str]:
    return Staging(fixture.disk).names()


TWO = pa.record_batch({"value": ["a", "b"], "partition": [0, 1]})


def test_a_put_with_an_application_is_staged_until_it_is_published(fixture: BrokerFixture) -> None:
    first = put(fixture, Stream([TWO, TWO]), app="q", batch=3, topic="orders", task="1", attempt=0)
    assert first["rows"] == 4
    assert staged(fixture) == [first["ref"]]
    fixture.commit()
    assert records(fixture, "orders") == []
    line: Any = Line(fixture)
    asked = wire.Publication("q", 3, (first["ref"],))
    assert flight_put.publish(line, ALICE, asked) == wire.Published(4, False)
    assert flight_put.publish(line, ALICE, asked) == wire.Published(0, True)
    assert records(fixture, "orders", 0) == [b"a", b"a"]
    assert records(fixture, "orders", 1) == [b"b", b"b"]
    assert staged(fixture) == []


def test_a_put_without_an_application_is_published_at_its_end(fixture: BrokerFixture) -> None:
    batch = pa.record_batch({"value": ["a", "b", "c"], "topic": ["orders", "new", "orders"], "key": ["k", "k", "k"]})
    assert put(fixture, Stream([batch])) == {"rows": 3, "repeated": False}
    assert records(fixture, "orders", fnv1a(b"k") % 2) == [b"a", b"c"]
    assert records(fixture, "new") == [b"b"]
    assert staged(fixture) == []
    assert put(fixture, Stream([TWO.slice(0, 0)]), topic="orders") == {"rows": 0, "repeated": False}


def test_what_was_staged_can_be_discarded(fixture: BrokerFixture) -> None:
    ref = put(fixture, Stream([TWO]), app="q", topic="orders")["ref"]
    line: Any = Line(fixture)
    flight_put.discard(line, ALICE, wire.Publication("q", 0, (ref,)))
    assert staged(fixture) == []


@pytest.mark.parametrize("command", [{"app": "q"}, {}])
def test_a_stream_that_breaks_leaves_nothing(fixture: BrokerFixture, command: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="broke off"):
        put(fixture, Stream([TWO] * 3), gone=True, topic="orders", **command)
    with pytest.raises(flight.FlightCancelledError):
        put(fixture, Stream([TWO], flight.FlightCancelledError("gone")), topic="orders", **command)
    fixture.disk.fail("write", error=errno.ENOSPC, path="staging/")
    with pytest.raises(Refused, match="no room") as raised:
        put(fixture, Stream([TWO]), topic="orders", **command)
    assert raised.value.kind == "LogFull"
    fixture.commit()
    assert staged(fixture) == []
    assert records(fixture, "orders", 0) == []


def test_what_is_wrong_with_a_stream_is_told(fixture: BrokerFixture) -> None:
    for columns, kind in (
        ({"value": ["x"], "price": [1]}, "UnusableColumns"),
        ({"value": ["x", None]}, "UnusableColumns"),
        ({"value": ["x"], "partition": [2]}, "PartitionNotFound"),
    ):
        with pytest.raises(Refused) as raised:
            put(fixture, Stream([pa.record_batch(columns)]), topic="orders")
        assert raised.value.kind == kind
    with pytest.raises(RemoteError) as remote:
        put(fixture, Stream([TWO]), topic="not\\valid")
    assert remote.value.kind == "InvalidName"
    assert staged(fixture) == []


def test_limits(fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fixture.options["limits"] = Limits(record_bytes=4, staged_topics=1)
    fixture.restart()
    monkeypatch.setattr(flight_put, "OsFiles", lambda _: fixture.disk)
    with pytest.raises(Refused, match="larger than the limit of 4"):
        put(fixture, Stream([pa.record_batch({"value": ["12345"]})]), topic="orders")
    with pytest.raises(Refused, match="More than 1 topics"):
        put(fixture, Stream([pa.record_batch({"value": ["1", "2"], "topic": ["orders", "x"]})]))
    fixture.options["limits"] = Limits(staged_stream_bytes=50)
    fixture.restart()
    monkeypatch.setattr(flight_put, "OsFiles", lambda _: fixture.disk)
    with pytest.raises(Refused, match="more than 50 bytes"):
        put(fixture, Stream([TWO]), topic="orders")
    (tmp_path / "one").write_bytes(bytes(10))
    (tmp_path / "two").write_bytes(bytes(10))
    assert flight_put._usage(str(tmp_path)) == {"one": (1, 10), "two": (1, 10)}
    assert flight_put._usage(str(tmp_path / "missing")) == {}
    monkeypatch.setattr(flight_put, "_usage", lambda _: {"another's": flight_put._Used(1, (16 << 30) + 1)})
    with pytest.raises(TooMany, match="not published yet"):
        put(fixture, Stream([TWO]), topic="orders")
    assert staged(fixture) == []


def test_a_tenant_has_its_share_of_what_is_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    greedy, modest = (StagingPermit("a", key, [], False, 1, 1, 1, 1 << 30, 1000, 10, 0.5) for key in (b"g", b"m"))
    usage = {b"g".hex(): flight_put._Used(1, 600)}
    monkeypatch.setattr(flight_put, "_usage", lambda _: usage)
    with pytest.raises(TooMany, match="600 bytes in 1 files of this tenant"):
        flight_put._StagingQuota("", greedy, "greedy").check(0)
    flight_put._StagingQuota("", modest, "modest").check(0)
    usage[b"m".hex()] = flight_put._Used(1, 201)
    with pytest.raises(TooMany):
        flight_put._StagingQuota("", modest, "modest").check(0)


def test_only_who_may_write_may_stage(fixture: BrokerFixture) -> None:
    grants = [Grant("alice", frozenset({Permission.WRITE}), topic="orders")]
    fixture.options["access"] = AccessPolicy(enforced=True, grants=grants)
    fixture.restart()
    bob = ALICE._replace(identity=Identity("bob"))
    batch = pa.record_batch({"value": ["x", "y"], "topic": ["orders", "secret"]})
    for caller, stream, topic in ((bob, TWO, "orders"), (bob, batch, None), (ALICE, batch, None)):
        with pytest.raises(RemoteError) as raised:
            put(fixture, Stream([stream]), caller=caller, topic=topic)
        assert raised.value.kind == "AccessDenied"
    assert staged(fixture) == []


# -- a real broker, and pyarrow's own client


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Path]]:
    data = tmp_path_factory.mktemp("put")
    with BrokerProcess(data, "--listen", "flight=127.0.0.1:0") as process:
        yield process.ready(), data


def connect(process: BrokerProcess) -> flight.FlightClient:
    return flight.connect(f"grpc://{process.address('flight')}")


def send(client: flight.FlightClient, command: dict[str, Any], batches: Sequence[pa.RecordBatch]) -> dict[str, Any]:
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
    writer, reader = client.do_put(descriptor, batches[0].schema)
    for batch in batches:
        writer.write_batch(batch)
    writer.done_writing()
    answer = reader.read()
    writer.close()
    found: dict[str, Any] = json.loads(answer.to_pybytes())
    return found


def act(client: flight.FlightClient, name: str, body: dict[str, Any]) -> dict[str, Any]:
    (answer,) = client.do_action(flight.Action(name, json.dumps(body).encode()))
    found: dict[str, Any] = json.loads(answer.body.to_pybytes())
    return found


def read(client: flight.FlightClient, topic: str) -> list[bytes]:
    info = client.get_flight_info(flight.FlightDescriptor.for_path(topic))
    tables = [client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    return [value for table in tables for value in table.column("value").to_pylist()]


def test_staging_and_publishing_over_flight(broker: tuple[BrokerProcess, Path]) -> None:
    process, data = broker
    with connect(process) as client:
        refs = [
            send(client, {"app": "q", "batch": 0, "topic": "flown", "task": str(task)}, [TWO.select(["value"])])["ref"]
            for task in range(3)
        ]
        assert len(list((data / "staging").iterdir())) == 3
        body = {"app": "q", "batch": 0, "refs": refs}
        assert act(client, "publish", body) == {"rows": 6, "repeated": False}
        assert act(client, "publish", body) == {"rows": 0, "repeated": True}
        assert read(client, "flown") == [b"a", b"b"] * 3
        late = send(client, {"app": "q", "batch": 1, "topic": "flown"}, [TWO.select(["value"])])["ref"]
        act(client, "discard", {"app": "q", "batch": 1, "refs": [late]})
        wait_until(lambda: not list((data / "staging").iterdir()))
        with pytest.raises(pa.ArrowInvalid, match="no place for column 'x'"):
            send(client, {"topic": "flown"}, [pa.record_batch({"x": [1]})])
        with pytest.raises(pa.ArrowInvalid, match="stage and publish it again"):
            act(client, "publish", {"app": "q", "batch": 1, "refs": [late]})


def wait_until(happened: Any, seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


BROKEN = """
import json, sys, time, pyarrow as pa
from pyarrow import flight
client = flight.connect("grpc://" + sys.argv[1])
batch = pa.record_batch({"value": [b"half"] * 200_000})
command = json.dumps({"topic": "broken"}).encode()
writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), batch.schema)
for _ in range(5):
    writer.write_batch(batch)
print("sent", flush=True)
time.sleep(60)
"""


def test_a_client_that_dies_in_the_middle_of_a_put_leaves_nothing(broker: tuple[BrokerProcess, Path]) -> None:
    process, data = broker
    with connect(process) as client:
        send(client, {"topic": "broken"}, [pa.record_batch({"value": [b"whole"]})])
        child = subprocess.Popen([sys.executable, "-c", BROKEN, process.address("flight")], stdout=subprocess.PIPE)
        with child:
            assert child.stdout is not None
            child.stdout.readline()
            wait_until(lambda: list((data / "staging").iterdir()))
            os.kill(child.pid, signal.SIGKILL)
        wait_until(lambda: not list((data / "staging").iterdir()))
        assert read(client, "broken") == [b"whole"]


def test_a_large_put_takes_several_steps(broker: tuple[BrokerProcess, Path]) -> None:
    process, data = broker
    values = [b"%07d" % n + bytes(93) for n in range(300_000)]
    batches = [pa.record_batch({"value": values[at : at + 10_000]}) for at in range(0, 300_000, 10_000)]
    with connect(process) as client:
        assert send(client, {"topic": "large"}, batches) == {"rows": 300_000, "repeated": False}
        assert read(client, "large") == values
    wait_until(lambda: not list((data / "staging").iterdir()))


def test_users_of_other_tenants_do_not_share_applications(tmp_path: Path) -> None:
    from tests.launcher import penstock

    flags = ("--data-dir", str(tmp_path))
    for tenant in ("a", "b"):
        done = penstock(
            "users", "add", "u", "--tenant", tenant, "--role", "admin", *flags, "--password-stdin", stdin="a password\n"
        )
        assert done.returncode == 0, done.stderr + done.stdout
    environment = {"PENSTOCK_SECURITY__MODE": "on"}
    with BrokerProcess(tmp_path, "--listen", "flight=127.0.0.1:0", **environment) as process:
        process.ready()
        with connect(process) as client:
            answers = []
            for tenant in ("a", "b", "a"):
                token = base64.b64encode(b"u:a password")
                options = flight.FlightCallOptions(
                    headers=[(b"authorization", b"Basic " + token), (b"x-penstock-tenant", tenant.encode())]
                )
                action = flight.Action("publish", json.dumps({"app": "q", "batch": 0, "refs": []}).encode())
                (answer,) = client.do_action(action, options)
                answers.append(json.loads(answer.body.to_pybytes())["repeated"])
            assert answers == [False, False, True]
            with pytest.raises(flight.FlightUnauthenticatedError):
                act(client, "publish", {"app": "q", "batch": 0, "refs": []})
