"""`penstock audit` as an operator uses it, with a broker that runs and without one."""

from __future__ import annotations

import csv
import io
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_keys import DOORS, SECURITY, Wire, add
from tests.launcher import BrokerProcess, Done, penstock

HEAD = ["time", "type", "user", "client_ip", "resource", "action", "result", "details"]


def audit(data_dir: Path, *arguments: str, **environment: str) -> Done:
    return penstock("audit", *arguments, "--data-dir", str(data_dir), **environment)


def rows(data_dir: Path, *arguments: str) -> list[list[str]]:
    done = audit(data_dir, *arguments)
    assert done.returncode == 0, done.stderr
    head, *lines = (line.split("\t") for line in done.stdout.splitlines())
    assert head == HEAD
    return lines


def rows_when(count: int, data_dir: Path, *arguments: str) -> list[list[str]]:
    """As soon as there are so many: a refusal does not wait for its event to be committed."""
    end = time.monotonic() + 20
    while len(found := rows(data_dir, *arguments)) < count and time.monotonic() < end:
        time.sleep(0.01)
    return found


def documents(data_dir: Path, *arguments: str) -> list[dict[str, Any]]:
    done = audit(data_dir, "--output", "jsonl", *arguments, **SECURITY)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_happens_on_the_wire_is_in_the_log_and_survives(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, *DOORS, **SECURITY) as broker:
        broker.ready()
        key = add(tmp_path, "--topic", "orders")
        with Wire(broker) as wire, Wire(broker) as stranger:
            assert stranger.enter("psk_1_" + "A" * 43) == 401
            assert wire.enter(key) == 0
            assert wire.subscribe(b"orders") == 0
            assert wire.subscribe(b"salaries") != 0
        told = rows_when(5, tmp_path)
        assert [row[1:7] for row in told] == [
            ["access.denied", "key:1", "127.0.0.1", "salaries", "read", "denied"],
            ["topic.create", "key:1", "127.0.0.1", "orders", "create", "success"],
            ["auth.success", "key:1", "127.0.0.1", "-", "key", "success"],
            ["auth.failure", "-", "127.0.0.1", "-", "key", "failure"],
            ["key.add", "admin@socket", "-", "key:1", "add", "success"],
        ]
        assert key[6:] not in audit(tmp_path).stdout
        broker.signal(signal.SIGKILL)
        broker.finish()
    assert rows(tmp_path) == told  # nobody runs: the command opens the log itself
    with BrokerProcess(tmp_path, *DOORS, **SECURITY) as broker:
        broker.ready()
        assert rows(tmp_path) == told


@pytest.mark.parametrize("running", [False, True])
def test_it_is_searched_and_handed_out(tmp_path: Path, running: bool) -> None:
    add(tmp_path)
    add(tmp_path)
    penstock("keys", "revoke", "1", "--data-dir", str(tmp_path), **SECURITY)

    def check() -> None:
        assert [event["type"] for event in documents(tmp_path)] == ["key.revoke", "key.add", "key.add"]
        assert [event["resource"] for event in documents(tmp_path, "--type", "key.add")] == ["key:2", "key:1"]
        assert len(documents(tmp_path, "--type", "key", "--since", "1h", "--actor", "admin@socket")) == 3
        assert documents(tmp_path, "--since", "0s") == documents(tmp_path, "--actor", "bob") == []
        assert documents(tmp_path, "--result", "denied") == documents(tmp_path, "--tenant", "acme") == []
        assert len(documents(tmp_path, "--search", "KEY:1")) == len(documents(tmp_path, "--resource", "key:1")) == 2
        done = audit(tmp_path, "--limit", "2")
        assert len(done.stdout.splitlines()) == 3 and "2 of 3 events" in done.stderr
        done = audit(tmp_path, "--csv", "--limit", "1")
        table = list(csv.DictReader(io.StringIO(done.stdout)))
        assert [row["type"] for row in table] == ["key.revoke", "key.add", "key.add"]
        assert json.loads(table[1]["details"])["name"] == "billing"

    if running:
        with BrokerProcess(tmp_path, *DOORS, **SECURITY) as broker:
            broker.ready()
            check()
    else:
        check()


def test_it_is_kept_while_security_is_on_or_as_configured(tmp_path: Path) -> None:
    for number, (environment, kept) in enumerate(
        (
            ({}, False),
            (SECURITY, True),
            (SECURITY | {"PENSTOCK_SECURITY__AUDIT": "off"}, False),
            ({"PENSTOCK_SECURITY__AUDIT": "on"}, True),
        )
    ):
        data = tmp_path / str(number)
        done = penstock("keys", "add", "ci", "--allow", "read", "--data-dir", str(data), **environment)
        assert done.returncode == 0, done.stderr
        done = audit(data, **environment)
        if kept:
            assert len(done.stdout.splitlines()) == 2
        else:
            assert done.returncode == 1 and "security.audit is off" in done.stderr and done.stdout == ""


def test_nothing_in_an_event_moves_the_cursor(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, *DOORS, **SECURITY) as broker:
        broker.ready()
        key = add(tmp_path, "--topic", "orders")
        with Wire(broker) as wire:
            wire.enter(key)
            assert wire.subscribe("x\t\x1b[2J\n\u202eé".encode()) != 0
        assert rows_when(1, tmp_path, "--type", "access.denied")[0][4] == r"x\t\x1b[2J\n\u202eé"
        assert documents(tmp_path, "--type", "access.denied")[0]["resource"] == "x\t\x1b[2J\n\u202eé"


def test_mistakes_are_told_in_a_line(tmp_path: Path) -> None:
    mistakes = (
        (("--type", "auth.nothing"), 2, "--type auth.nothing"),
        (("--type", "aut"), 2, "there are auth.success"),
        (("--since", "soon"), 2, "--since soon"),
        (("--since", "5"), 2, "--since 5"),
        (("--result", "good"), 2, "--result good"),
        (("--limit", "0"), 2, "--limit"),
        (("--limit", "1001"), 2, "--limit"),
        (("--output", "xml"), 2, "--output"),
    )
    for arguments, code, said in mistakes:
        done = audit(tmp_path, *arguments)
        assert done.returncode == code and said in done.stderr, (arguments, done)
        assert "Traceback" not in done.stderr and done.stdout == ""
    done = audit(tmp_path / "nowhere")
    assert done.returncode == 1 and "no such directory" in done.stderr
