"""`penstock status` and `penstock doctor`: what an operator sees first."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess, penstock


class Place:
    def __init__(self, data_dir: Path, server: str, secret: Path) -> None:
        self.data_dir = str(data_dir)
        self.login = ("--server", server, "--user", "ada", "--password-file", str(secret))
        self.server = server


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("status")
    data, secret = home / "data", home / "secret"
    secret.write_text(penstock("users", "add", "ada", "--role", "admin", "--generate", "--data-dir", str(data)).stdout)
    with BrokerProcess(data, PENSTOCK_SECURITY__MODE="on") as process:
        yield Place(data, process.ready().address("rustlog"), secret)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_status_over_the_network_and_on_the_machine_itself(place: Place) -> None:
    done = penstock("status", *place.login)
    assert done.returncode == 0, done
    fields = [line.split("\t", 1) for line in done.stdout.splitlines()]
    assert ["health", "ok"] in fields and ["security", "on"] in fields
    assert any(name == "doors" and place.server in value for name, value in fields)
    local = penstock("status", "--data-dir", place.data_dir, "-o", "json")
    document = json.loads(local.stdout)
    assert document["problems"] == [] and document["disk_free"] > 0
    assert document["broker"]["version"] == next(value for name, value in fields if name == "version")


def test_status_says_who_may_not_and_who_is_not_there(place: Place, tmp_path: Path) -> None:
    done = penstock("status", "--server", place.server)
    assert done.returncode == 1 and "--user" in done.stderr and done.stdout == ""
    (tmp_path / "empty").mkdir()
    done = penstock("status", "--data-dir", str(tmp_path / "empty"))
    assert done.returncode == 1 and "no broker runs" in done.stderr


def found(*arguments: str, **environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    done = penstock("doctor", "--output", "json", *arguments, **environment)
    return done.returncode, {row["check"]: row for row in json.loads(done.stdout)}


def test_doctor_finds_a_running_broker_in_order(place: Place) -> None:
    _, checks = found("--data-dir", place.data_dir)
    assert checks["ports"]["state"] == "ok" and "runs there" in checks["ports"]["found"]
    assert checks["disk sync"]["found"].endswith("for a synced write of 4 KiB")
    assert {"disk space", "open files", "clock", "java", "certificate"} <= checks.keys()


def test_doctor_names_a_port_that_is_taken_and_an_open_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        doors = {f"PENSTOCK_LISTEN__{name}": "off" for name in ("BLIPMQ", "FLYMQ", "KIMBERLITE", "FELIX", "HTTP")}
        code, checks = found("--data-dir", str(data), PENSTOCK_LISTEN__RUSTLOG=f"127.0.0.1:{port}", **doors)
    assert code == 1
    assert checks["data directory"]["state"] == "wrong" and "chmod" in checks["data directory"]["what_to_do"]
    assert checks[f"port {port}"]["state"] == "wrong" and "rustlog" in checks[f"port {port}"]["found"]
