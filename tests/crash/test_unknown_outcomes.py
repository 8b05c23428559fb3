"""A sync that fails for real, at every way in: the reply says that the outcome is unknown, what was refused afterwards
is never there, what was acknowledged always is, and the write in doubt may be: here, where the disk has it, it is.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.launcher import RestartableBroker

from penstock.clients import blipmq, felix, flymq, kimberlite, rustlog
from penstock.clients._core.errors import OutcomeUnknown, PenstockError

TOPIC = "doubts"
FIRST_STREAM = (1 << 32) | 1  # its number, by the tenant's
MANY = 40  # more than the syncs of a thread before one fails


def failing_syncs(data_dir: str) -> list[str]:
    """The command that lets the journal's seventh fdatasync of a thread fail, after the disk has done it; skips if that
    is not possible here."""
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed")
    journal = f"{data_dir}/journal/00000000000000000001.journal"
    command = [program, "-f", "--seccomp-bpf", "-qq", "-o", os.devnull, "-P", journal, "-e", "trace=fdatasync"]
    command += ["-e", "inject=fdatasync:error=EIO:when=7"]
    tried = subprocess.run([*command, "true"], capture_output=True)
    if tried.returncode:
        pytest.skip(f"strace cannot be used here: {tried.stderr.decode()[:200]}")
    return command


class Refused(Exception):
    """A reply that says: surely not stored."""


class Unknown(Exception):
    """A reply that says: the outcome is unknown."""


Write = Callable[[str], None]
Read = Callable[[], list[str]]


@contextmanager
def replies(unknown: type[Exception] = OutcomeUnknown, refused: type[Exception] = PenstockError) -> Iterator[None]:
    try:
        yield
    except unknown as error:
        raise Unknown(str(error)) from error
    except refused as error:
        raise Refused(str(error)) from error


# -- the ways in


@contextmanager
def by_rustlog(broker: RestartableBroker) -> Iterator[tuple[Write, Read]]:
    with rustlog.Client("127.0.0.1", broker.ports["rustlog"]) as client:

        def write(text: str) -> None:
            with replies():
                client.produce(TOPIC, 0, [text.encode()])

        def read() -> list[str]:
            return [record.payload.decode() for record in client.fetch(TOPIC, 0, 0).records]

        with suppress(rustlog.ClientError):  # it is there already
            client.create_topic(TOPIC, 1)
        yield write, read


@contextmanager
def by_flymq(broker: RestartableBroker) -> Iterator[tuple[Write, Read]]:
    with by_rustlog(broker) as (_, read), flymq.Client("127.0.0.1", broker.ports["flymq"]) as client:

        def write(text: str) -> None:
            with replies():
                client.produce(TOPIC, text.encode())

        yield write, read


@contextmanager
def by_blipmq(broker: RestartableBroker) -> Iterator[tuple[Write, Read]]:
    with by_rustlog(broker) as (_, read), blipmq.Client("127.0.0.1", broker.ports["blipmq"], key="") as client:

        def write(text: str) -> None:
            client.publish(TOPIC, text.encode())
            with replies():
                client.flush()

        yield write, read


@contextmanager
def by_kimberlite(broker: RestartableBroker) -> Iterator[tuple[Write, Read]]:
    with kimberlite.KimberliteClient(f"127.0.0.1:{broker.ports['kimberlite']}", tenant=1) as client:
        try:
            stream = client.create_stream(TOPIC)
        except kimberlite.StreamAlreadyExists:
            stream = FIRST_STREAM

        def write(text: str) -> None:
            with replies():
                client.append(stream, [text.encode()])

        yield write, lambda: [event.decode() for event in client.read(stream)]


@contextmanager
def by_sql(broker: RestartableBroker) -> Iterator[tuple[Write, Read]]:
    address = f"127.0.0.1:{broker.ports['kimberlite']}"
    with by_kimberlite(broker) as (_, read), kimberlite.KimberliteClient(address, tenant=1) as client:

        def write(text: str) -> None:
            with replies():
                client.query(f"INSERT INTO {TOPIC} (data) VALUES ('{text}')")

        yield write, read


@contextmanager
def by_felix(broker: RestartableBroker) -> Iterator[tuple[Write, Read]]:
    with felix.FelixClient(f"127.0.0.1:{broker.ports['felix']}", tenant="default", insecure=True) as client:

        def write(text: str) -> None:
            with replies():
                client.publish(TOPIC, text.encode())

        with by_rustlog(broker) as (_, read):
            yield write, read


@contextmanager
def by_flight(broker: RestartableBroker) -> Iterator[tuple[Write, Read]]:
    import pyarrow as pa
    from pyarrow import flight

    with by_rustlog(broker) as (_, read), flight.FlightClient(f"grpc://127.0.0.1:{broker.ports['flight']}") as client:

        def write(text: str) -> None:
            descriptor = flight.FlightDescriptor.for_command(json.dumps({"topic": TOPIC}).encode())
            batch = pa.record_batch({"value": pa.array([text.encode()], pa.binary())})
            with replies(flight.FlightInternalError, flight.FlightUnavailableError):
                writer, answers = client.do_put(descriptor, batch.schema)
                writer.write_batch(batch)
                writer.done_writing()
                answers.read()
                writer.close()

        yield write, read


class AdminConnection(http.client.HTTPConnection):
    """HTTP on the administration's socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(30)
        self.sock.connect(self._path)


@contextmanager
def by_administration(broker: RestartableBroker) -> Iterator[tuple[Write, Read]]:
    def ask(method: str, path: str, body: object = None) -> tuple[int, str]:
        connection = AdminConnection(f"{broker.data_dir}/admin.sock")
        try:
            kind = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), kind)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def write(text: str) -> None:
        status, said = ask("PUT", f"/api/v1/tenants/{text}", {})
        if status == 500:
            raise Unknown(said)
        if status != 200:
            raise Refused(f"{status}: {said}")

    def read() -> list[str]:
        status, said = ask("GET", "/api/v1/tenants?limit=1000")
        assert status == 200, said
        found: Any = json.loads(said)
        return [name for tenant in found["items"] if (name := tenant["name"]).startswith("t-")]

    yield write, read


@dataclass(frozen=True)
class Way:
    open: Callable[[RestartableBroker], Any]
    doors: tuple[str, ...]


WAYS = {
    "rustlog": Way(by_rustlog, ("rustlog",)),
    "flymq": Way(by_flymq, ("rustlog", "flymq")),
    "blipmq": Way(by_blipmq, ("rustlog", "blipmq")),
    "kimberlite": Way(by_kimberlite, ("kimberlite",)),
    "sql": Way(by_sql, ("kimberlite",)),
    "felix": Way(by_felix, ("rustlog", "felix")),
    "flight": Way(by_flight, ("rustlog", "flight")),
    "administration": Way(by_administration, ("http",)),
}


@pytest.mark.parametrize("name", WAYS)
def test_the_reply_after_a_failed_sync_says_that_the_outcome_is_unknown(name: str, tmp_path: Path) -> None:
    way, acknowledged, refused = WAYS[name], list[str](), list[str]()
    doors = dict.fromkeys(way.doors, "127.0.0.1:0")
    with RestartableBroker(str(tmp_path), doors=doors, prefix=failing_syncs(f"{tmp_path}/data")) as broker:
        broker.start()
        with way.open(broker) as (write, _):
            doubtful = ""
            for number in range(MANY):
                text = f"t-{number:02}"
                try:
                    write(text)
                except Unknown as error:
                    assert "unknown" in str(error) or "may be stored, or not" in str(error)
                    doubtful = text
                    break
                acknowledged.append(text)
            assert doubtful, "no sync failed"
            for text in ("t-refused", "t-refused-too"):
                with pytest.raises(Refused):
                    write(text)
                refused.append(text)
        broker.kill()
    with RestartableBroker(str(tmp_path), doors=doors) as broker:
        broker.start()
        with way.open(broker) as (_, read):
            assert read() == [*acknowledged, doubtful]
