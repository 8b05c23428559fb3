"""Administration from another machine, with a login and without a data directory; and which way a command takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from tests.launcher import BrokerProcess, Done, penstock

from penstock.cli.admin_target import admin_target
from penstock.cli.context import add
from penstock.cli.target import Target, TargetFlags
from penstock.config.settings import Settings

VARIABLES = ("SERVER", "CONTEXT", "DATA_DIR", "CONFIG", "USER", "KEY_FILE")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The server's address, and files with the secrets of an administrator, a reader and nobody."""
    home = tmp_path_factory.mktemp("administered")
    found = {}
    for name, role in (("admin", "admin"), ("reader", "consumer")):
        done = penstock("users", "add", name, "--role", role, "--generate", "--data-dir", str(home / "data"))
        found[name] = str(home / name)
        Path(found[name]).write_text(done.stdout)
    (home / "wrong").write_text("not it\n")
    found["wrong"] = str(home / "wrong")
    with BrokerProcess(home / "data", PENSTOCK_SECURITY__MODE="on") as process:
        yield found | {"server": process.ready().address("rustlog")}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine's point of view: nothing of the broker's is near."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in VARIABLES:
        monkeypatch.delenv(f"PENSTOCK_{name}", raising=False)


def as_user(broker: dict[str, str], user: str, *arguments: str, stdin: str = "", secret: str = "") -> Done:
    login = ("--server", broker["server"], "--user", user, "--password-file", broker[secret or user])
    return penstock(*arguments, *login, stdin=stdin)


def ok(broker: dict[str, str], *arguments: str, stdin: str = "") -> str:
    done = as_user(broker, "admin", *arguments, stdin=stdin)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def test_an_administrator_does_all_of_it_over_the_network(broker: dict[str, str]) -> None:
    ok(broker, "users", "add", "bob", "--password-stdin", stdin="a word\n")
    ok(broker, "roles", "set", "team", "--allow", "read")
    ok(broker, "users", "set", "bob", "--role", "team")
    (bob,) = (user for user in json.loads(ok(broker, "users", "list", "--output", "json")) if user["name"] == "bob")
    assert bob["roles"] == ["team"] and bob["permissions"] == ["read"]
    ok(broker, "acl", "set", "orders", "--allow-user", "bob", "--allow-role", "team", "--restrict")
    assert json.loads(ok(broker, "acl", "show", "orders", "-o", "json"))["users"] == ["bob"]
    assert "orders\trestricts\tbob\tteam" in ok(broker, "acl", "list")
    assert ok(broker, "keys", "add", "shop", "--allow", "write").strip()
    key = json.loads(ok(broker, "keys", "list", "-o", "jsonl").splitlines()[-1])
    assert key["name"] == "shop" and key["permissions"] == ["write"]
    ok(broker, "keys", "revoke", str(key["id"]))
    events = [json.loads(line) for line in ok(broker, "audit", "--actor", "user:admin", "-o", "jsonl").splitlines()]
    assert {"user.create", "acl.set"} <= {event["type"] for event in events}
    assert "head\t" in ok(broker, "audit", "verify")
    ok(broker, "acl", "remove", "orders")
    ok(broker, "users", "remove", "bob")
    ok(broker, "roles", "remove", "team")
    assert "bob" not in ok(broker, "users", "list")


def test_tenants_are_made_by_administrators_of_all_of_them(broker: dict[str, str]) -> None:
    assert json.loads(ok(broker, "tenant", "list", "-o", "json")) == []
    done = as_user(broker, "admin", "tenant", "create", "acme")
    assert done.returncode == 1 and "may not admin" in done.stderr


REFUSED = (
    ("users", "list"),
    ("users", "add", "eve", "--generate"),
    ("roles", "set", "team", "--allow", "read"),
    ("acl", "set", "orders", "--allow-user", "reader"),
    ("keys", "list"),
    ("keys", "add", "eve", "--allow", "admin"),
    ("tenant", "delete", "default", "--yes"),
    ("audit",),
    ("audit", "verify"),
)


@pytest.mark.parametrize("command", REFUSED, ids=" ".join)
def test_who_may_not_is_told_so_in_a_line(broker: dict[str, str], command: tuple[str, ...]) -> None:
    for user, secret in (("reader", "reader"), ("reader", "wrong")):
        done = as_user(broker, user, *command, secret=secret)
        assert done.returncode == 1 and done.stdout == "", done
        assert done.stderr.startswith("penstock: ") and done.stderr.count("\n") == 1, done.stderr
    done = penstock(*command, "--server", broker["server"])
    assert done.returncode == 1 and "--user" in done.stderr


def test_a_broker_that_is_not_there_is_told_with_what_to_do() -> None:
    done = penstock("users", "list", "--server", "127.0.0.1:1")
    assert done.returncode == 1 and "127.0.0.1:1" in done.stderr and "penstock serve" in done.stderr


def test_which_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def way(server: str | None = None, data_dir: str | None = None) -> str:
        found = admin_target(TargetFlags(server, data_dir=data_dir))
        return str(found.endpoint) if isinstance(found, Target) else found.data_dir

    (tmp_path / "d").mkdir()
    directory = str(tmp_path / "d")
    assert way() == "127.0.0.1:9092"
    (tmp_path / "data").mkdir()
    assert way() == "127.0.0.1:9092"  # a directory counts when it is named
    assert isinstance(admin_target(TargetFlags(data_dir=directory)), Settings)
    add("prod", server="prod:1", use=True)
    assert way() == "prod:1"
    monkeypatch.setenv("PENSTOCK_DATA_DIR", directory)
    assert way() == directory
    monkeypatch.setenv("PENSTOCK_SERVER", "environment:2")
    assert way() == "environment:2"
    assert way(data_dir=directory) == directory
    assert way("flag:3") == "flag:3"
    with pytest.raises(typer.Exit):
        way("flag:3", data_dir=directory)
