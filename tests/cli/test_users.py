"""`penstock users`, `roles` and `acl` as an operator uses them, with and without a running broker."""

from __future__ import annotations

import re
import signal
import socket
import struct
from pathlib import Path
from typing import Self

import pytest
from tests.launcher import BrokerProcess, Done, penstock

SECURITY = {"PENSTOCK_SECURITY__MODE": "on"}
DOORS = ("--listen", "blipmq=127.0.0.1:0")


def run(data_dir: Path, *arguments: str, stdin: str = "", **environment: str) -> Done:
    return penstock(*arguments, "--data-dir", str(data_dir), stdin=stdin, **environment)


def ok(data_dir: Path, *arguments: str, stdin: str = "", **environment: str) -> str:
    done = run(data_dir, *arguments, stdin=stdin, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def table(data_dir: Path, *arguments: str) -> dict[str, list[str]]:
    _, *rows = (line.split("\t") for line in ok(data_dir, *arguments).splitlines())
    return {row[0]: row[1:] for row in rows}


def tour(data: Path) -> None:
    """The steps of an operator, from the first administrator on."""
    done = run(data, "users", "add", "alice", "--role", "admin", **SECURITY)
    assert re.fullmatch(r"[A-Za-z0-9_-]{24}\n", done.stdout)
    assert "not shown again" in done.stderr and "security is off" not in done.stderr
    assert ok(data, "users", "add", "bob", "--password-stdin", stdin="a word\n") == ""
    assert ok(data, "roles", "set", "team", "--allow", "read, write", "--description", "ours") == (
        "set role team: read, write\n"
    )
    assert ok(data, "users", "set", "bob", "--role", "team", "--role", "guest") == "changed user bob\n"
    assert ok(data, "users", "set", "bob", "--disable") == "changed user bob\n"
    users = table(data, "users", "list")
    assert users["alice"][:3] == ["admin", "read,write,admin", "enabled"]
    assert users["bob"][:3] == ["team,guest", "read,write", "disabled"]
    ok(data, "users", "set", "bob", "--enable", "--no-roles")
    assert table(data, "users", "list")["bob"][:3] == ["", "", "enabled"]
    assert table(data, "roles", "list")["team"] == ["read,write", "custom", "ours"]
    assert table(data, "roles", "list")["guest"][:2] == ["", "built-in"]

    ok(
        data,
        "acl",
        "set",
        "orders",
        "--allow-user",
        "bob",
        "--allow-user",
        "key:3",
        "--allow-role",
        "team",
        "--restrict",
    )
    ok(data, "acl", "set", "a/b [c]*", "--allow-role", "guest")
    assert table(data, "acl", "list") == {
        "a/b [c]*": ["adds", "", "guest"],
        "orders": ["restricts", "bob,key:3", "team"],
    }
    assert ok(data, "acl", "show", "orders").splitlines() == [
        "topic\torders",
        "kind\trestricts",
        "user\tbob",
        "user\tkey:3",
        "role\tteam",
    ]
    assert ok(data, "acl", "remove", "a/b [c]*") == "a/b [c]* has no access list\n"
    assert ok(data, "users", "remove", "bob") == "removed user bob\n"
    assert ok(data, "roles", "remove", "team") == "removed role team\n"
    assert table(data, "acl", "list") == {"orders": ["restricts", "key:3", ""]}

    assert re.fullmatch(r"\S{24}\n", ok(data, "users", "password", "alice"))
    assert ok(data, "users", "password", "alice", "--password-stdin", stdin="another\n") == ""
    ok(data, "users", "add", "a/b ü", "--tenant", "acme", "--generate")
    assert list(table(data, "users", "list", "--tenant", "acme")) == ["a/b ü"]
    ok(data, "users", "set", "a/b ü", "--tenant", "acme", "--disable")
    assert table(data, "users", "list", "--tenant", "acme")["a/b ü"][2] == "disabled"


def test_without_a_broker_the_commands_do_it_themselves(tmp_path: Path) -> None:
    tour(tmp_path / "new")
    assert not (tmp_path / "new" / "admin.sock").exists()


def test_a_running_broker_is_asked_and_keeps_it_after_kill_9(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, *DOORS, **SECURITY) as broker:
        broker.ready()
        tour(tmp_path)
        before = table(tmp_path, "users", "list"), table(tmp_path, "acl", "list")
        broker.signal(signal.SIGKILL)
        broker.finish()
    assert (table(tmp_path, "users", "list"), table(tmp_path, "acl", "list")) == before
    with BrokerProcess(tmp_path, *DOORS, **SECURITY) as broker:
        broker.ready()
        assert (table(tmp_path, "users", "list"), table(tmp_path, "acl", "list")) == before


class Wire:
    """A FlyMQ connection, frame by frame."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._socket = socket.create_connection(broker.endpoint("flymq"), timeout=20)

    def ask(self, opcode: int, *texts: str) -> tuple[int, bytes]:
        payload = b"".join(struct.pack(">H", len(text)) + text.encode() for text in texts)
        self._socket.sendall(struct.pack(">BBBBI", 0xAF, 1, opcode, 0, len(payload)) + payload)
        head = self._take(8)
        return head[2], self._take(int.from_bytes(head[4:], "big"))

    def enter(self, name: str, password: str) -> bool:
        return self.ask(0x70, name, password)[1][0] == 1

    def lists_users(self) -> bool:
        return self.ask(0x76)[0] == 0x76

    def _take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def test_users_get_in_on_the_wire_and_changes_act_on_open_connections(tmp_path: Path) -> None:
    ok(tmp_path, "users", "add", "alice", "--role", "admin", "--password-stdin", stdin="a word\n")
    environment = SECURITY | {"PENSTOCK_SECURITY__LOCKOUT_FAILURES": "3", "PENSTOCK_SECURITY__LOCKOUT_SECONDS": "1h"}
    with BrokerProcess(tmp_path, "--listen", "flymq=127.0.0.1:0", **environment) as broker:
        with Wire(broker.ready()) as wire, Wire(broker) as other:
            assert not wire.lists_users()
            assert not wire.enter("alice", "another") and not wire.lists_users()
            assert wire.enter("alice", "a word") and wire.lists_users()
            assert b"alice" in wire.ask(0x72)[1] and b"alice" not in other.ask(0x72)[1]
            ok(tmp_path, "users", "set", "alice", "--role", "guest")
            assert not wire.lists_users()
            ok(tmp_path, "users", "set", "alice", "--role", "admin")
            assert wire.lists_users()
            ok(tmp_path, "users", "set", "alice", "--disable")
            assert not wire.lists_users() and not other.enter("alice", "a word")
            ok(tmp_path, "users", "set", "alice", "--enable")
            ok(tmp_path, "users", "password", "alice", "--password-stdin", stdin="new\n")
            assert not other.enter("alice", "a word") and other.enter("alice", "new") and other.lists_users()
            assert not other.enter("alice", "newer")
            assert not other.enter("alice", "new")  # three were wrong
        broker.signal(signal.SIGTERM)
        assert "locked out: too many wrong passwords" in broker.finish()[2]


def test_the_socket_may_remove_the_last_administrator(tmp_path: Path) -> None:
    ok(tmp_path, "users", "add", "alice", "--role", "admin")
    ok(tmp_path, "users", "set", "alice", "--role", "guest")
    ok(tmp_path, "users", "remove", "alice")
    assert table(tmp_path, "users", "list") == {}


def test_what_public_means_is_configured(tmp_path: Path) -> None:
    done = run(tmp_path, "acl", "set", "news", "--public")
    assert done.returncode == 1 and "anonymous access is disabled" in done.stderr
    ok(tmp_path, "acl", "set", "news", "--public", PENSTOCK_SECURITY__ALLOW_ANONYMOUS="true")
    assert table(tmp_path, "acl", "list")["news"][0] == "public"


def test_with_security_off_that_is_said(tmp_path: Path) -> None:
    done = run(tmp_path, "users", "add", "alice")
    assert done.returncode == 0 and "security is off" in done.stderr


@pytest.mark.parametrize("running", [False, True])
def test_mistakes_are_told_in_a_line(tmp_path: Path, running: bool) -> None:
    ok(tmp_path, "users", "add", "alice", "--role", "admin")
    ok(tmp_path, "roles", "set", "team", "--allow", "read")
    ok(tmp_path, "users", "add", "bob", "--role", "team")
    mistakes = (
        (("users", "add", "alice"), 1, "User 'alice' already exists"),
        (("users", "add", "x", "--role", "king"), 1, "Role 'king' not found"),
        (("users", "add", "key:1"), 1, "mean API keys"),
        (("users", "add", "x", "--password-stdin"), 1, "1 to 1024 bytes"),
        (("users", "add", "x", "--password-stdin", "--generate"), 2, "choose one"),
        (("users", "add", "x", "--tenant", "a/b"), 1, "Tenant name"),
        (("users", "set", "x", "--disable"), 1, "User 'x' not found"),
        (("users", "set", "alice"), 2, "nothing to change"),
        (("users", "set", "alice", "--role", "admin", "--no-roles"), 2, "choose one"),
        (("users", "password", "x"), 1, "User 'x' not found"),
        (("users", "remove", "x"), 1, "User 'x' not found"),
        (("roles", "set", "admin", "--allow", "read"), 1, "built in"),
        (("roles", "set", "x", "--allow", "fly"), 1, "no permission 'fly'"),
        (("roles", "remove", "x"), 1, "Role 'x' not found"),
        (("roles", "remove", "team"), 1, "still held by user 'bob'"),
        (("acl", "set", "t", "--allow-role", "king"), 1, "Role 'king' not found"),
        (("acl", "set", "__audit"), 1, "the broker's own"),
        (("acl", "set", "a//b"), 1, "Topic name"),
        (("acl", "set", "t", "--namespace", "*"), 1, "Namespace name"),
        (("acl", "show", "t"), 1, "has no access list"),
    )

    def check() -> None:
        for arguments, code, said in mistakes:
            done = run(tmp_path, *arguments, stdin="\n")
            assert done.returncode == code and said in done.stderr, (arguments, done)
            assert "Traceback" not in done.stderr and done.stdout == ""
        assert list(table(tmp_path, "users", "list")) == ["alice", "bob"]

    if running:
        with BrokerProcess(tmp_path, *DOORS) as broker:
            broker.ready()
            check()
    else:
        check()


@pytest.mark.parametrize(
    "command",
    [("users", "list"), ("users", "set", "x", "--disable"), ("users", "remove", "x"), ("users", "password", "x"),
     ("roles", "list"), ("roles", "remove", "x"), ("acl", "list"), ("acl", "show", "x"), ("acl", "remove", "x")],
)  # fmt: skip
def test_a_directory_that_is_not_there_is_told_and_not_made(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = run(tmp_path / "nowhere", *command)
    assert done.returncode == 1 and "no such directory" in done.stderr
    assert not (tmp_path / "nowhere").exists()
