"""Messages to the service manager, from a real broker and where there is no manager."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess

from penstock.server.service_manager import notify


def manager(address: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(address)
    sock.settimeout(20)
    return sock


@pytest.mark.process
def test_a_broker_says_when_it_is_ready_and_when_it_stops(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with manager(address) as sock, BrokerProcess(tmp_path / "data", NOTIFY_SOCKET=address) as broker:
        assert sock.recv(100) == b"READY=1"
        with socket.create_connection(broker.ready().endpoint("http"), timeout=20):
            pass
        broker.signal(signal.SIGTERM)
        assert sock.recv(100) == b"STOPPING=1"
        assert broker.finish()[0] == 0


def test_an_abstract_socket_is_told_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = f"penstock-{tmp_path.name}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with manager(f"\0{name}") as sock:
        notify("READY=1")
        assert sock.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "nonsense", "/nowhere/at/all"])
def test_nobody_to_tell_is_no_error(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
