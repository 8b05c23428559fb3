"""Every command against a broker with security on, from another machine's point of view: with `--server` and a login
alone, in another directory, without a data directory. As administrator, with too little permission, and as nobody.

One row for each command: a command without one fails a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.cli.secured import SECURED
from tests.launcher import BrokerProcess, Done, penstock
from typer.main import get_command

from penstock.cli.main import app

Reader = Literal["refused", "allowed", "partly"]
"""The output for a user who may only read: an error, the same as the administrator's, or less of it."""


@dataclass(frozen=True, slots=True)
class Row:
    """Arguments for the administrator; `{name}` stands for something that the fixture has prepared."""

    arguments: str
    reader: Reader = "refused"
    before: tuple[str, ...] = ()
    """Commands of the administrator that make what it needs."""
    stdin: str = ""
    code: int = 0
    nobody: bool = True
    """Whether it is refused to who has no login."""


ROWS: dict[str, Row] = {
    "topic create": Row("made"),
    "topic list": Row("", "allowed"),
    "topic describe": Row("orders", "allowed"),
    "topic delete": Row("made --yes", before=("topic create made",)),
    "topic set": Row("orders --retention 1d"),
    "produce": Row("orders value --key k"),
    "consume": Row("orders --from earliest", "allowed"),
    "group list": Row("", "allowed"),
    "group lag": Row("", "allowed"),
    "group describe": Row("billing", "allowed"),
    "group reset": Row("billing orders --to earliest --dry-run", "allowed"),
    "group delete": Row("gone orders --yes", before=("consume orders --group gone --from earliest",)),
    "queue list": Row("", "allowed"),
    "queue describe": Row("{queue}", "allowed"),
    "queue take": Row("jobs workers", "allowed"),
    "queue delete": Row("{queue} --yes", "allowed"),
    "dlq list": Row("orders", "allowed"),
    "dlq show": Row("orders {letter}", "allowed"),
    "dlq replay": Row("orders --all", code=1),  # it still does not fit
    "dlq purge": Row("orders --yes"),
    "delayed list": Row("", "partly"),
    "delayed cancel": Row("{delayed}"),
    "txn list": Row(""),
    "txn abort": Row("nonsense --yes", code=1),
    "sql": Row("SELECT(1)", "allowed"),
    "cache list": Row("", "partly"),
    "cache get": Row("ann", "allowed", before=("cache put ann here",)),
    "cache put": Row("ann here"),
    "cache incr": Row("visits"),
    "cache delete": Row("bob", before=("cache put bob here",)),
    "table list": Row("", "allowed"),
    "table show": Row("untabled", before=("topic create untabled",), code=1),
    "table verify": Row("orders"),
    "table repair": Row("orders --yes"),
    "schema register": Row("note {schema} --kind json"),
    "schema list": Row("", "allowed"),
    "schema show": Row("order", "allowed"),
    "schema validate": Row("order {document}", "allowed"),
    "schema mode": Row("order none"),
    "schema delete": Row("brief", before=("schema register brief {schema} --kind json",)),
    "tenant list": Row(""),
    "tenant show": Row("default"),
    "tenant create": Row("acme", code=1),  # takes an administrator of all tenants
    "tenant delete": Row("acme --yes", code=1),
    "users add": Row("adam --generate"),
    "users list": Row(""),
    "users set": Row("eve --role consumer", before=("users add eve --generate",)),
    "users password": Row("eve --generate", before=("users add eve --generate",)),
    "users remove": Row("eve", before=("users add eve --generate",)),
    "roles list": Row("", "allowed", nobody=False),  # the built-in ones are no secret
    "roles set": Row("team --allow read"),
    "roles remove": Row("team", before=("roles set team --allow read",)),
    "acl list": Row(""),
    "acl show": Row("guarded"),
    "acl set": Row("guarded --allow-user reader"),
    "acl remove": Row("lone", before=("acl set lone --allow-user reader",)),
    "keys add": Row("shop --allow read"),
    "keys list": Row(""),
    "keys rotate": Row("{key}"),
    "keys revoke": Row("{key}"),
    "audit": Row(""),
    "audit verify": Row(""),
    "cert show": Row("", code=1),  # no door shows one here
    "top": Row("--once --interval 0.1", "allowed"),
    "bench": Row("--seconds 0.1"),
    "backup create": Row("{backup}", code=1),  # takes an administrator of all tenants
    "status": Row("", "allowed"),
    "debug bundle": Row("--file {bundle}", "partly", nobody=False),  # what may not be seen is left out
}
LOCAL = {
    "serve": "runs a broker", "up": "runs a broker", "version": "says who we are", "config": "reads a configuration",
    "context add": "writes a file", "context use": "writes a file", "context list": "reads a file",
    "context remove": "writes a file", "context show": "reads a file", "doctor": "looks at this machine",
    "log verify": "reads a stopped broker's files", "log repair": "changes a stopped broker's files",
    "backup verify": "reads a backup", "restore": "writes a data directory",
    "token issue": "signs with a key of this machine", "token key": "makes files", "token inspect": "test_token.py",
    "conformance": "has logins of its own: test_conformance.py", "mirror": "has URLs: tests/mirror",
    "storage copy": "moves a stopped broker's files: tests/kafka/test_storage_copy.py",
    "pipeline init": "writes files", "pipeline run": "runs Spark", "pipeline dry-run": "runs Spark",
    "pipeline status": "reads files", "pipeline logs": "reads files", "pipeline stop": "signals a process",
    "pipeline reset": "changes files", "pipeline restart": "signals a process", "pipeline report": "reads files",
}  # fmt: skip
"""Commands that talk to no broker over the network, and why, or where they are tested."""


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    if not hasattr(command, "commands"):
        yield " ".join(path)
        return
    if path and command.invoke_without_command:
        yield " ".join(path)
    for name in command.commands:
        yield from leaves(command.commands[name], (*path, name))


def test_every_command_has_a_row() -> None:
    known = set(leaves(get_command(app)))
    assert known - set(ROWS) - set(LOCAL) == set(), "commands without a row"
    assert (set(ROWS) | set(LOCAL)) - known == set(), "rows without a command"


class Elsewhere:
    """Another machine: nothing of the broker's is near but its address."""

    def __init__(self, server: str, home: Path) -> None:
        self.server = server
        self.home = home
        self.known: dict[str, str] = {}

    def run(self, user: str | None, command: str, stdin: str = "") -> Done:
        login = () if user is None else ("--user", user, "--password-file", str(self.home / user))
        words = [word.format_map(self.known) for word in command.split()]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.home)
            return penstock(
                *words, "--server", self.server, *login, stdin=stdin, HOME=str(self.home),
                XDG_CONFIG_HOME=str(self.home),
            )  # fmt: skip

    def admin(self, command: str, stdin: str = "") -> str:
        done = self.run("admin", command, stdin)
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    path = tmp_path_factory.mktemp("every")
    home = path / "elsewhere"
    home.mkdir()
    for name, role in (("admin", "admin"), ("reader", "consumer")):
        (home / name).write_text(f"{name} has a long password\n")
        done = penstock(
            *("users", "add", name, "--role", role, "--password-stdin", "--data-dir", str(path / "data")),
            stdin=(home / name).read_text(),
        )
        assert done.returncode == 0, done.stderr
    settings = SECURED | {"PENSTOCK_TABLES__ENABLED": "true"}
    with BrokerProcess(path / "data", "--durability", "written", **settings) as process:
        there = Elsewhere(process.ready().address("rustlog"), home)
        (home / "schema").write_text('{"type": "object", "properties": {"id": {"type": "integer"}}}')
        (home / "document").write_text('{"id": 1}')
        there.known = {"schema": str(home / "schema"), "document": str(home / "document")}
        there.admin("topic create orders")
        there.admin("topic create jobs")
        there.admin("topic create guarded")
        there.admin("acl set guarded --allow-user reader")
        there.admin("schema register order {schema} --kind json")
        there.admin("topic set orders --schema order --rejected dead-letter")
        there.admin("produce orders", '{"id": 1}\n')
        there.admin("consume orders --group billing")
        there.admin("queue take jobs workers")
        yield there


def prepare(broker: Elsewhere, name: str, tmp_path: Path) -> None:
    """The prerequisites that one row consumes: a dead letter, a queue, a key, a delayed record."""
    needed: dict[str, Callable[[], str]] = {
        "letter": lambda: _letter(broker),
        "queue": lambda: broker.admin("queue list").splitlines()[-1].split("\t")[0],
        "delayed": lambda: _number(broker.admin("produce jobs later --delay 1h")),
        "key": lambda: _key(broker),
        "backup": lambda: str(tmp_path / "backup"),
        "bundle": lambda: str(tmp_path / "bundle.tar.gz"),
    }
    for key, make in needed.items():
        if f"{{{key}}}" in ROWS[name].arguments:
            if key == "queue":
                broker.admin("queue take jobs workers")
            broker.known[key] = make()
    if name.startswith("dlq"):
        _letter(broker)
    for command in ROWS[name].before:
        broker.run("admin", command)  # it may be there


def _letter(broker: Elsewhere) -> str:
    broker.admin("produce orders", '{"id": "no number"}\n')
    return broker.admin("dlq list orders").splitlines()[-1].split("\t")[0]


def _number(text: str) -> str:
    found = re.search(r"\d+", text)
    assert found is not None
    return found[0]


def _key(broker: Elsewhere) -> str:
    broker.admin("keys add row --allow read")
    return [line for line in broker.admin("keys list").splitlines() if "\trow\t" in line][-1].split("\t")[0]


def told_in_a_line(done: Done) -> None:
    assert done.returncode == 1, done
    assert done.stderr.startswith("penstock: ") and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("name", ROWS)
def test_an_administrator_does_it_and_others_are_told_in_a_line(name: str, broker: Elsewhere, tmp_path: Path) -> None:
    row = ROWS[name]
    command = f"{name} {row.arguments}"
    prepare(broker, name, tmp_path)
    if row.nobody:
        done = broker.run(None, command, row.stdin)
        told_in_a_line(done)
        assert "--user, --key-file or --token-file" in done.stderr
    done = broker.run("reader", command, row.stdin)
    if row.reader == "refused":
        told_in_a_line(done)
    else:
        assert done.returncode == 0, done.stderr
    if row.reader == "allowed":
        prepare(broker, name, tmp_path)  # it may have been used up
    elif name == "debug bundle":
        (tmp_path / "bundle.tar.gz").unlink()
    done = broker.run("admin", command, row.stdin)
    assert done.returncode == row.code, done.stderr
    if row.code:
        told_in_a_line(done)
    assert "Traceback" not in done.stderr
