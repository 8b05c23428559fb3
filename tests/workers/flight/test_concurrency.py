from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import flight
from tests.launcher import BrokerProcess
from tests.workers.flight.seeded_flight_broker import ACME, OPEN, client, get, made

from penstock.broker.names import DEFAULT_SCOPE
from penstock.workers.flight.concurrency import ConcurrencyLimit, Slot, disconnect
from penstock.workers.flight.errors import TooMany


def test_a_place_is_free_when_nobody_holds_it() -> None:
    room = ConcurrencyLimit(2, "guests")
    first, second = room.acquire(), room.acquire()
    with pytest.raises(TooMany, match="2 guests are open"):
        room.acquire()
    del first
    third = room.acquire()
    with third:
        pass
    with pytest.raises(ZeroDivisionError), second:
        raise ZeroDivisionError
    del third  # was given back already
    both = room.acquire(), room.acquire()
    with pytest.raises(TooMany):
        room.acquire()
    assert len(both) == 2


def taken(room: ConcurrencyLimit, *owner: str) -> list[Slot]:
    """As many as this one gets."""
    found = []
    with contextlib.suppress(TooMany):
        while True:
            found.append(room.acquire(*owner))
    return found


def test_a_tenant_and_a_caller_leave_some_for_others() -> None:
    room = ConcurrencyLimit(64, "streams", 0.5)
    first = taken(room, "greedy", "one")
    assert len(first) == 16
    with pytest.raises(TooMany, match="16 streams of this caller are open, which is its share"):
        room.acquire("greedy", "one")
    others = taken(room, "greedy", "two") + taken(room, "greedy", "three")
    assert len(others) == 8 + 4
    assert len(taken(room, "modest", "one")) == 9  # half of half of what is left


def test_what_does_not_move_is_found() -> None:
    now = 0.0
    room = ConcurrencyLimit(3, "streams", clock=lambda: now)
    slow, quick = room.acquire("t", peer="10.0.0.1:1"), room.acquire("t", peer="10.0.0.1:2")
    now = 10.0
    quick.touch()
    assert room.stalled(9.0) == {"10.0.0.1:1"} and room.stalled(11.0) == set()
    with slow:
        pass
    assert room.stalled(9.0) == set()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_peer_is_disconnected_and_no_other(host: str) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((host, 0), family=_family(host)))
        clients = [stack.enter_context(socket.create_connection(listener.getsockname()[:2])) for _ in range(2)]
        ours = [stack.enter_context(listener.accept()[0]) for _ in range(2)]
        port = clients[0].getsockname()[1]
        assert disconnect(f"[{host}]:{port}" if ":" in host else f"{host}:{port}") == 1
        assert clients[0].recv(1) == b""
        before = len(os.listdir("/proc/self/fd"))
        assert disconnect("192.0.2.1:1") == 0
        assert len(os.listdir("/proc/self/fd")) == before  # nothing of what it looked at is left open
        ours[1].sendall(b"x")
        assert clients[1].recv(1) == b"x"


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


RECORDS = 48  # MiB: more than gRPC and the system keep for a client that does not read

# -- a broker, and callers that do not read


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streams")
    with made(path) as maker:
        for scope in (ACME, DEFAULT_SCOPE):
            maker.topic("large", 1, scope)
            for _ in range(RECORDS):
                maker.append("large", [bytes(1 << 20)], scope=scope)
    return path


def unread(broker: BrokerProcess) -> Iterator[flight.FlightStreamReader]:
    """Streams of one caller that nobody reads, as many as it gets."""
    connection = client(broker)
    with contextlib.suppress(flight.FlightUnavailableError):
        while True:
            stream = get(connection, "large")
            stream.read_chunk()
            yield stream


def test_unread_streams_of_one_caller_leave_some_for_the_next(directory: Path) -> None:
    with BrokerProcess(directory, *OPEN, PENSTOCK_FLIGHT__STREAMS="16") as broker:
        broker.ready()
        streams = list(unread(broker))
        assert len(streams) == 4  # a quarter: half of what its tenant may have
        headers = flight.FlightCallOptions(headers=[(b"x-penstock-tenant", b"acme")])
        found = client(broker).do_get(flight.Ticket(b'{"topic": "large", "partition": 0, "start": 0}'), headers)
        assert found.read_all().num_rows == RECORDS
        for stream in streams:
            stream.cancel()


def test_a_stream_that_nobody_reads_is_closed_after_a_while(directory: Path) -> None:
    with BrokerProcess(directory, *OPEN, PENSTOCK_FLIGHT__STREAMS="1", PENSTOCK_FLIGHT__UNREAD_SECONDS="1") as broker:
        broker.ready()
        (stream,) = unread(broker)
        end = time.monotonic() + 60
        found = None
        while found is None:
            assert time.monotonic() < end
            with contextlib.suppress(flight.FlightUnavailableError):
                found = get(client(broker), "large").read_all()
        assert found.num_rows == RECORDS
        with pytest.raises(flight.FlightError):
            stream.read_all()
