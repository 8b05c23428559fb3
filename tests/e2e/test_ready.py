"""Ready means ready: who is let in is answered by everything behind the door, from the first connection on."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess
from tests.ports import steady_port
from tests.preloaded import STARTED_WORKERS
from tests.process_stats import workers

from penstock.clients.kimberlite import KimberliteClient, RetryPolicy

DEADLINE = 300.0  # seconds; workers of low priority take their time on a loaded machine
ONCE = RetryPolicy(attempts=1)


def first_connection(address: tuple[str, int]) -> None:
    """Return as soon as somebody takes connections there."""
    end = time.monotonic() + DEADLINE
    while True:
        try:
            socket.create_connection(address, 10).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < end, "the door does not open"


@pytest.mark.parametrize("start", ["connection", "statement"])
def test_a_query_is_served_as_soon_as_the_first_port_takes_connections(tmp_path: Path, start: str) -> None:
    kimberlite, flight = steady_port(), steady_port()
    flags = ("--listen", f"kimberlite=127.0.0.1:{kimberlite}", "--listen", f"flight=127.0.0.1:{flight}")
    with BrokerProcess(tmp_path, *flags, PENSTOCK_SQL__START=start) as broker:
        first_connection(("127.0.0.1", kimberlite))
        socket.create_connection(("127.0.0.1", flight), 10).close()  # it has a process of its own, and is there too
        with KimberliteClient(f"127.0.0.1:{kimberlite}", tenant=1, retry=ONCE, timeout=DEADLINE) as client:
            assert client.query("SELECT 1 AS one").rows == [[1]]
        broker.ready()
        for door in ("rustlog", "blipmq", "flymq", "http"):
            socket.create_connection(broker.endpoint(door), 10).close()


def test_sql_may_be_loaded_before_the_first_port_takes_connections(tmp_path: Path) -> None:
    rustlog = steady_port()
    flags = ("--listen", f"rustlog=127.0.0.1:{rustlog}")
    with BrokerProcess(tmp_path, *flags, PENSTOCK_SQL__START="broker", **STARTED_WORKERS) as broker:
        first_connection(("127.0.0.1", rustlog))
        (sql,) = workers(broker.process.pid, "penstock.workers.sql.main")
        loaded = Path(f"/proc/{sql}/maps").read_text()
        assert "duckdb" in loaded and "deltalake" in loaded
        broker.ready()


def test_a_query_waits_for_a_process_that_was_killed_and_is_started_again(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, **STARTED_WORKERS) as broker:
        address = broker.ready().address("kimberlite")
        with KimberliteClient(address, tenant=1, retry=ONCE, timeout=DEADLINE) as client:
            for number in range(3):
                assert client.query(f"SELECT {number} AS n").rows == [[number]]
                for worker in workers(broker.process.pid, "penstock.workers.sql.main"):
                    os.kill(worker, signal.SIGKILL)  # and the next one comes at once


def ready(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}/health/ready", timeout=10) as reply:
            return reply.status, json.load(reply)["status"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["status"]


def test_a_broker_whose_flight_process_is_away_is_not_ready_until_that_is_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--listen", "flight=127.0.0.1:0", **STARTED_WORKERS) as broker:
        address = broker.ready().address("http")
        assert ready(address) == (200, "ready")
        (worker,) = workers(broker.process.pid, "penstock.workers.flight.main")
        os.kill(worker, signal.SIGKILL)
        for wanted in ((503, "incomplete"), (200, "ready")):
            end = time.monotonic() + DEADLINE
            while (found := ready(address)) != wanted:
                assert time.monotonic() < end, found
        with urllib.request.urlopen(f"http://{address}/health/live", timeout=10) as reply:
            assert reply.status == 200
