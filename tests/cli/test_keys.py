"""`penstock keys` as an operator uses it, and what its keys open and close on the wire."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from tests.launcher import BrokerProcess, Done, penstock

from penstock.log.lock import DirectoryLock
from penstock.wire.blipmq import codec, frames

SECURITY = {"PENSTOCK_SECURITY__MODE": "on"}
DOORS = ("--listen", "blipmq=127.0.0.1:0")


def keys(data_dir: Path, *arguments: str, stdin: str = "", **environment: str) -> Done:
    return penstock("keys", *arguments, "--data-dir", str(data_dir), stdin=stdin, **environment)


def add(data_dir: Path, *arguments: str, allow: str = "read,write,create", stdin: str = "") -> str:
    done = keys(data_dir, "add", "billing", "--allow", allow, *arguments, stdin=stdin, **SECURITY)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def states(data_dir: Path) -> dict[str, str]:
    done = keys(data_dir, "list")
    assert done.returncode == 0, done.stderr
    head, *rows = (line.split("\t") for line in done.stdout.splitlines())
    assert head == ["id", "name", "tenant", "permissions", "topics", "created", "expires", "state", "roles"]
    return {row[0]: row[7] for row in rows}


class Wire:
    """A BlipMQ connection, frame by frame."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._socket = socket.create_connection(broker.endpoint("blipmq"), timeout=10)
        self._number = 0
        self.ask(codec.encode_hello(1, 1))

    def ask(self, frame: bytes) -> tuple[int, str]:
        """0 for an ACK; the code and the text of a NACK."""
        self._socket.sendall(frame)
        length = int.from_bytes(self._take(4), "big")
        body = self._take(length)
        if body[0] == frames.ACK:
            return 0, ""
        refusal = codec.decode_nack(body[9:])
        assert body[0] == frames.NACK and refusal is not None
        return refusal

    def enter(self, key: str) -> int:
        return self.ask(codec.encode_auth(2, key))[0]

    def subscribe(self, topic: bytes) -> int:
        return self.ask(codec.encode_subscribe(3, topic, 1))[0]

    def _take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


def test_keys_are_added_and_revoked_while_the_broker_runs(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, *DOORS, **SECURITY) as broker:
        broker.ready()
        assert stat.S_IMODE((tmp_path / "admin.sock").stat().st_mode) == 0o600
        key = add(tmp_path, "--topic", "orders.*", "--expires", "30d")
        assert re.fullmatch(r"psk_1_[A-Za-z0-9_-]{43}", key)
        other = add(tmp_path)
        with Wire(broker) as wire, Wire(broker) as neighbour, Wire(broker) as stranger:
            assert stranger.enter("psk_1_" + "A" * 43) == 401
            assert wire.enter(key) == 0 and neighbour.enter(other) == 0
            assert wire.subscribe(b"orders.eu") == 0
            assert wire.subscribe(b"salaries") != 0
            assert keys(tmp_path, "revoke", "1").stdout == "revoked key 1\n"
            assert wire.subscribe(b"orders.eu") != 0
            assert stranger.enter(key) == 401
            assert neighbour.subscribe(b"orders.eu") == 0
        assert states(tmp_path) == {"1": "revoked", "2": "active"}


def test_keys_and_revocations_are_there_after_kill_9_and_after_a_clean_stop(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, *DOORS, **SECURITY) as broker:
        broker.ready()
        first, second = add(tmp_path), add(tmp_path)
        chosen = "a key from the old days"
        assert add(tmp_path, "--key-stdin", stdin=chosen + "\n") == ""
        keys(tmp_path, "revoke", "2")
        broker.signal(signal.SIGKILL)
        broker.finish()
    assert (tmp_path / "admin.sock").exists()  # and nobody behind it
    assert states(tmp_path) == {"1": "active", "2": "revoked", "3": "active"}
    for _ in range(2):  # after the kill, then after the stop
        with BrokerProcess(tmp_path, *DOORS, **SECURITY) as broker:
            broker.ready()
            assert states(tmp_path) == {"1": "active", "2": "revoked", "3": "active"}
            for key, expected in ((first, 0), (second, 401), (chosen, 0)):
                with Wire(broker) as wire:
                    assert wire.enter(key) == expected
            broker.signal(signal.SIGTERM)
            assert broker.finish()[0] == 0
        assert not (tmp_path / "admin.sock").exists()


def test_without_a_broker_the_command_does_it_itself(tmp_path: Path) -> None:
    data = tmp_path / "new"
    key = add(data, "--tenant", "default", "--topic", "a", "--topic", "b*")
    assert states(data) == {"1": "active"}
    add(data)
    assert keys(data, "revoke", "2").returncode == 0
    assert not (data / "admin.sock").exists()
    with BrokerProcess(data, *DOORS, **SECURITY) as broker, Wire(broker.ready()) as wire:
        assert wire.enter(key) == 0
        assert wire.subscribe(b"b-side") == 0 and wire.subscribe(b"c") != 0
        assert states(data) == {"1": "active", "2": "revoked"}


def test_who_guesses_is_locked_out_as_configured_and_valid_keys_of_the_host_are_not(tmp_path: Path) -> None:
    environment = SECURITY | {"PENSTOCK_SECURITY__LOCKOUT_FAILURES": "3", "PENSTOCK_SECURITY__LOCKOUT_SECONDS": "1h"}
    key = add(tmp_path)
    with BrokerProcess(tmp_path, *DOORS, **environment) as broker, Wire(broker.ready()) as wire:
        assert [wire.enter("psk_1_wrong") for _ in range(3)] == [401] * 3
        code, text = wire.ask(codec.encode_auth(9, "psk_1_wrong"))
        assert code != 0 and text != "invalid API key"
        with Wire(broker) as again:
            assert again.enter("psk_1_another") == code
        with Wire(broker) as again:
            assert again.enter(key) == 0
        broker.signal(signal.SIGTERM)
        assert "locked out" in broker.finish()[2]


def test_a_list_shows_what_a_key_may_do_and_never_the_key(tmp_path: Path) -> None:
    secret = add(
        tmp_path, "--tenant", "acme", "--topic", "x", "--topic", "y.*", "--expires", "1.5h", allow="read,admin"
    )
    done = keys(tmp_path, "list")
    row = done.stdout.splitlines()[1].split("\t")
    assert row[:5] == ["1", "billing", "acme", "read,admin", "x,y.*"] and row[7] == "active"
    created, expires = (time.strptime(text, "%Y-%m-%d %H:%M:%S") for text in row[5:7])
    assert time.mktime(expires) - time.mktime(created) in (5399, 5400, 5401)
    assert secret[6:] not in done.stdout
    add(tmp_path)
    assert keys(tmp_path, "list").stdout.splitlines()[2].split("\t")[6] == "never"


def test_what_is_printed_can_be_piped(tmp_path: Path) -> None:
    done = keys(tmp_path, "add", "ci", "--allow", "write")
    assert re.fullmatch(r"psk_1_\S{43}\n", done.stdout)
    assert "not shown again" in done.stderr and "security is off" in done.stderr
    done = keys(tmp_path, "add", "ci", "--allow", "write", **SECURITY)
    assert "security is off" not in done.stderr


@pytest.mark.parametrize("running", [False, True])
def test_mistakes_are_told_in_a_line(tmp_path: Path, running: bool) -> None:
    add(tmp_path)
    mistakes = (
        (("revoke", "7"), 1, "There is no key 7"),
        (("revoke", "x"), 2, "ID"),
        (("add", "x"), 2, "--allow"),
        (("add", "x", "--allow", "fly"), 2, "no permission 'fly'"),
        (("add", "x", "--allow", ","), 1, "at least one permission"),
        (("add", "x", "--allow", "read", "--expires", "soon"), 2, "--expires soon"),
        (("add", "x", "--allow", "read", "--expires", "5"), 2, "--expires 5"),
        (("add", "x", "--allow", "read", "--expires", "0s"), 1, "in the future"),
        (("add", "x", "--allow", "read", "--tenant", "a/b"), 1, "Tenant name"),
        (("add", "x", "--allow", "read", "--key-stdin"), 1, "16 to 1024 characters"),
    )

    def check() -> None:
        for arguments, code, said in mistakes:
            done = keys(tmp_path, *arguments, stdin="short\n")
            assert done.returncode == code and said in done.stderr, (arguments, done)
            assert "Traceback" not in done.stderr and done.stdout == ""
        assert states(tmp_path) == {"1": "active"}

    if running:
        with BrokerProcess(tmp_path, *DOORS) as broker:
            broker.ready()
            check()
    else:
        check()


def test_a_directory_that_is_not_there_or_is_held_by_something_silent_is_told(tmp_path: Path) -> None:
    for command in (("list",), ("revoke", "1")):
        done = keys(tmp_path / "nowhere", *command)
        assert done.returncode == 1 and "no such directory" in done.stderr
    lock = DirectoryLock(str(tmp_path))
    lock.acquire()
    done = keys(tmp_path, "list")
    lock.release()
    assert done.returncode == 1
    assert f"in use by process {os.getpid()}" in done.stderr and "admin.sock" in done.stderr


def test_a_broker_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "admin.sock"))
        silent.listen()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("penstock.cli.administration.TIMEOUT_SECONDS", 0.05)
            done = keys(tmp_path, "list")
    assert done.returncode == 1 and "did not answer" in done.stderr and done.stdout == ""
