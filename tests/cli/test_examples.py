"""Every example that a `--help` shows, carried out against a real broker: what stands for a host, a directory or an id
in it is replaced by what there is here."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.launcher import BrokerProcess, Done, penstock
from typer.main import get_command

import penstock as api
from penstock.cli.examples import examples_of
from penstock.cli.main import app

ROOT: Any = get_command(app)

ONLY_PARSED = {
    "penstock serve": "runs for ever: test_serve.py",
    "penstock up": "runs for ever: test_up.py",
    "tail -f": "runs for ever",
    "penstock conformance --against": "test_conformance.py",
    "penstock mirror kafka": "a cluster of Kafka: tests/mirror/test_kafka.py",
    "penstock storage copy": "a cluster of Kafka: tests/kafka/test_storage_copy.py",
    "penstock pipeline run": "Spark: tests/spark",
    "penstock pipeline dry-run": "Spark: tests/spark",
    "penstock pipeline status": "Spark: tests/spark",
    "penstock pipeline logs": "Spark: tests/spark",
    "penstock pipeline stop": "Spark: tests/spark",
    "penstock pipeline restart": "a process that runs Spark: tests/cli/test_pipeline.py",
    "penstock pipeline reset": "Spark: tests/spark",
}
MAY_FAIL = {
    "penstock table show orders": "not found",
    "penstock doctor": "wrong",  # the machine may not be fit for a broker
    "penstock dlq replay orders --all": "does not fit",
    "penstock acl set orders --allow-user ada --restrict": "",
}
"""Examples whose exit code may be 1 here, and what they say then."""


def all_examples() -> Iterator[str]:
    def below(command: Any) -> Iterator[str]:
        yield from examples_of(command)
        for name in getattr(command, "commands", ()):
            yield from below(command.commands[name])

    for name in ROOT.commands:
        yield from below(ROOT.commands[name])


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if path:
        yield path, command
    for name in getattr(command, "commands", ()):
        yield from leaves(command.commands[name], (*path, name))


@pytest.mark.parametrize("path", [path for path, _ in leaves(ROOT)], ids=" ".join)
def test_every_help_has_an_example_of_the_command_itself(path: tuple[str, ...]) -> None:
    command = ROOT
    for name in path:
        command = command.commands[name]
    found = examples_of(command)
    assert found, "no example"
    assert any(f"penstock {' '.join(path)}" in each for each in found)
    said = penstock(*path, "--help").stdout
    assert "Examples:" in said and all(each in said for each in found), said  # each on a line of its own


IDS = {"letter": "", "transaction": "5f2a", "queue": "7", "delayed": "7", "key": "1", "version": "1"}


@dataclass
class Place:
    """A broker, another one, and a directory with what examples name."""

    server: str
    other: str
    home: Path
    ids: dict[str, str]

    def filled(self, example: str) -> str:
        replaced = {
            "broker.example:9092": self.server, "127.0.0.1:5555": self.server, "old:9092": self.server,
            "legacy:9092": self.server, "new:9092": self.other, "/var/lib/penstock": str(self.home / "data"),
            "/var/lib/stopped": str(self.home / "stopped"), "/var/lib/restored": str(self.home / "restored"),
            "/backups/monday": str(self.home / "monday"), "/var/log/penstock.log": str(self.home / "penstock.log"),
            "/etc/penstock.toml": str(self.home / "penstock.toml"),
            "--seconds 10": "--seconds 0.2", "--wait 5": "--wait 0.1",
            "--topic 'orders.*' --follow": "--topic 'orders.*'", " --follow": "",
            "order --version 1": f"order --version {self.ids['version']}",
            "orders-0-17": self.ids["letter"], "5f2a": self.ids["transaction"],
        }  # fmt: skip
        for name, value in replaced.items():
            example = example.replace(name, value)
        if example.startswith("penstock bench") and "--seconds" not in example:
            example += " --seconds 0.2"
        example = re.sub(r"(queue (?:describe|delete)) 7", rf"\1 {self.ids['queue']}", example)
        example = re.sub(r"(delayed cancel) 7", rf"\1 {self.ids['delayed']}", example)
        return re.sub(r"(keys (?:rotate|revoke)) 1", rf"\1 {self.ids['key']}", example)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("examples")
    for name, text in (
        ("order.json", '{"type": "object", "properties": {"id": {"type": "integer"}}}'), ("document.json", '{"id": 1}'),
        ("bob.password", "a word\n"), ("ada.password", "a word\n"), ("penstock.toml", ""), ("penstock.log", "a line\n"),
        ("shared.secret", "s" * 64), ("password", "a word\n"),
    ):  # fmt: skip
        (home / name).write_text(text)
    assert penstock("users", "add", "x", "--generate", "--data-dir", str(home / "stopped")).returncode == 0
    keys = penstock("token", "key", str(home / "issuer.key"), str(home / "issuer.pem"))
    assert keys.returncode == 0
    token = penstock("token", "issue", "ada", "--key", str(home / "shared.secret"), "--role", "Admin")
    (home / "ada.token").write_text(token.stdout)
    flags = ("--durability", "written", "--listen", "felix=127.0.0.1:0")
    with (
        BrokerProcess(home / "data", *flags, PENSTOCK_TABLES__ENABLED="true", PENSTOCK_SECURITY__AUDIT="on") as first,
        BrokerProcess(home / "other", "--durability", "memory") as second,
    ):
        yield Place(first.ready().address("rustlog"), second.ready().address("rustlog"), home, dict(IDS))


def prepare(place: Place, example: str) -> None:
    """Make what the example needs, and remove what it makes."""
    with api.connect(place.server) as db, contextlib.ExitStack() as kept:
        admin = db.admin
        for topic in ("orders", "old-1", "old-2", "logs", "copy", "jobs", "reminders"):
            with contextlib.suppress(api.PenstockError):
                admin.topics.create(topic)
        with contextlib.suppress(api.PenstockError):
            admin.schemas.register("order", (place.home / "order.json").read_text(), "json")
        place.ids["version"] = str(admin.schemas.list()[-1].version)  # that of a deleted one is not used again
        if " topic create" in example:
            admin.topics.delete("orders")
        elif "dlq" in example:
            admin.topics.set("orders", schema="order", rejected="dead-letter")
            with db.producer(idempotent=False) as producer:
                producer.send("orders", b'{"id": "x"}')
            place.ids["letter"] = admin.dead_letters.list("orders")[-1].id
            admin.topics.set("orders", schema=None)
        else:
            db.produce("orders", b'{"id": 1}')
        if " group " in example:
            with db.consume("orders", "billing", follow=False) as consumer:
                list(consumer)
        for user in ("ada", "bob", "eve"):
            with contextlib.suppress(api.PenstockError):
                if f"users add {user}" in example:
                    admin.users.delete(user)
                else:
                    admin.users.create(user, "a word")
        for role in ("billing",):
            with contextlib.suppress(api.PenstockError):
                admin.roles.set(role, ["read"])
        with contextlib.suppress(api.PenstockError):
            admin.acls.set("orders", users=["ada"])
        for cache in ("default", "sessions"):
            admin.caches.put(cache, "ann", b"here")
        if "tenant" in example:
            with contextlib.suppress(api.PenstockError):
                admin.tenants.create("acme")
        if " queue " in example:
            db.queue("jobs", "mailers").close()
            place.ids["queue"] = str(admin.queues.list()[-1].id)
        if " delayed " in example:
            place.ids["delayed"] = str(db.produce("reminders", b"later", delay=3600).offset)
        if " txn " in example:
            transaction = kept.enter_context(_rolled_back(db))
            place.ids["transaction"] = admin.transactions.list()[-1].id
            assert transaction is not None
            _run(place, example)
            return
        if " keys " in example:
            place.ids["key"] = str(admin.keys.create("row", ["read"]).key.id)
    _run(place, example)


@contextlib.contextmanager
def _rolled_back(db: api.Connection) -> Iterator[Any]:
    with contextlib.suppress(api.PenstockError, KeyError), db.transaction() as transaction:
        transaction.produce("orders", b'{"id": 2}')
        yield transaction
        raise KeyError("not to be committed")


def _run(place: Place, example: str) -> None:
    for name in ("report.tar.gz", "new.key", "new.pem"):
        (place.home / name).unlink(missing_ok=True)
    stdin, done = "", Done(0, "", "")
    for part in place.filled(example).split(" | "):
        words = shlex.split(part)
        environment = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"), str(place.home))
        environment["PENSTOCK_SERVER"] = place.server
        if "--user" in words:
            environment["PENSTOCK_PASSWORD_FILE"] = str(place.home / "password")
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        target = None
        if len(words) > 2 and words[-2] in ("<", ">"):
            if words[-2] == "<":
                stdin = (place.home / words[-1]).read_text()
            else:
                target = place.home / words[-1]
            words = words[:-2]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place.home)
            done = penstock(*words[1:], stdin=stdin or "y\n", **environment)
        stdin = done.stdout
        if target is not None and target.name != "ada.token":
            target.write_text(done.stdout)
    allowed = next((said for begin, said in MAY_FAIL.items() if example.startswith(begin)), None)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or (allowed is not None and allowed in done.stdout + done.stderr), (example, done)


EXAMPLES = list(dict.fromkeys(all_examples()))
MADE = {"penstock backup create": "monday", "penstock restore": "restored", "penstock pipeline init": "shop"}
"""Folders that examples make, and that must not be there before."""


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_works(example: str, place: Place) -> None:
    if any(example.startswith(begin) for begin in ONLY_PARSED):
        words = shlex.split(example.rpartition(" | ")[2])
        command, rest = ROOT, words[1:]
        while hasattr(command, "commands"):
            command, rest = command.commands[rest[0]], rest[1:]
        command.make_context("x", rest, resilient_parsing=False)
        return
    if example.startswith("penstock context") and " add " not in example:
        _run(place, "penstock context add prod --server broker.example:9092 --use")
    for maker, made in MADE.items():
        if example.startswith(maker):
            shutil.rmtree(place.home / made, ignore_errors=True)
    if (" backup verify" in example or " restore" in example) and not (place.home / "monday").exists():
        _run(place, "penstock backup create /backups/monday --data-dir /var/lib/penstock")
    if " pipeline " in example and " init " not in example and not (place.home / "shop").exists():
        _run(place, "penstock pipeline init shop")
    prepare(place, example)
