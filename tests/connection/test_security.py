"""Users, keys and tokens at every door that `penstock.connect` uses, and TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.launcher import BrokerProcess
from tests.launcher import penstock as command
from tests.transport.certificates import Authority

import penstock
from penstock.clients import blipmq, flymq, http
from penstock.connection import Connection

SECRET = b"0123456789abcdef0123456789abcdef"
PASSWORD = "correct horse"


class Guarded(NamedTuple):
    address: str
    ca: str
    who: dict[str, dict[str, str]]  # → how they log in


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    path: Path = tmp_path_factory.mktemp("guarded")
    authority = Authority(path)
    server = authority.issue("server")
    signing = path / "signing.secret"
    signing.write_bytes(SECRET)
    signing.chmod(0o600)
    config = path / "penstock.toml"
    config.write_text(
        f'[security]\nmode = "on"\ntoken_keys = ["{signing}"]\n'
        f'[tls]\ncert = "{server.cert}"\nkey = "{server.key}"\nrequired = true\n'
    )
    data = path / "data"
    listen = ("--listen", "flight=127.0.0.1:0", "--listen", "felix=127.0.0.1:0", "--config", str(config))
    with BrokerProcess(data, *listen) as broker:
        broker.ready()
        at = ("--data-dir", str(data))
        for name, role in (("ann", "admin"), ("bob", "consumer")):
            done = command("users", "add", name, "--role", role, "--password-stdin", *at, stdin=f"{PASSWORD}\n")
            assert done.returncode == 0, done.stderr
        allow = ("--allow", "read,write,create,commit,describe,cache-read,cache-write")
        key = command("keys", "add", "ci", *allow, *at)
        assert key.returncode == 0, key.stderr
        token = command("token", "issue", "cy", "--key", str(signing), "--role", "Admin", "--tenant", "default")
        assert token.returncode == 0, token.stderr
        _, port = broker.endpoint("flymq")
        yield Guarded(
            f"localhost:{port}",
            authority.path,
            {
                "user": {"user": "ann", "password": PASSWORD},
                "key": {"key": key.stdout.strip()},
                "token": {"token": token.stdout.strip()},
                "reader": {"user": "bob", "password": PASSWORD},
            },
        )


def connected(guarded: Guarded, who: str) -> Connection:
    return penstock.connect(guarded.address, tls=guarded.ca, timeout=60, **guarded.who[who])  # type: ignore[arg-type]


@pytest.mark.parametrize("who", ["user", "key", "token"])
def test_everybody_who_may_does_everything_with_records(guarded: Guarded, who: str) -> None:
    topic = f"of-{who}"
    with connected(guarded, who) as db:
        db.produce(topic, b"1", headers={"a": b"b"})
        with db.producer() as producer:
            producer.send(topic, b"2")
        with db.transaction() as transaction:
            transaction.produce(topic, b"3")
        assert [record.value for record in db.consume(topic, "g", follow=False)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("who", ["user", "key", "token"])
def test_a_queue_is_open_to_whoever_has_logged_in(guarded: Guarded, who: str) -> None:
    with connected(guarded, who) as db, db.queue(f"jobs-of-{who}", "w") as queue:
        db.produce(f"jobs-of-{who}", b"job")
        message = queue.get(10)
        assert message is not None
        message.ack()


@pytest.mark.parametrize("who", ["user", "key", "token"])
def test_tables_and_administration_know_who_asks(guarded: Guarded, who: str) -> None:
    with connected(guarded, who) as db:
        db.produce(f"table-of-{who}", b"v")
        assert db.table(f"table-of-{who}").num_rows == 1
        assert db.admin.identity().security
        assert db.admin.topics.get(f"table-of-{who}").topic.records == 1
        cache = db.cache(f"cache-of-{who}")
        cache.put("k", b"v", ttl=60)
        assert (cache.get("k"), cache.get("none")) == (b"v", None)
        assert cache.compare_and_set("k", b"w", b"x") == (False, b"v")
        assert cache.compare_and_set("k", b"v", b"x") == (True, b"x")
        assert (cache.increment("n"), cache.increment("n", 5)) == (1, 6)
        assert (cache.delete("k"), cache.delete("k")) == (True, False)


def test_who_may_not_is_told_so(guarded: Guarded) -> None:
    with connected(guarded, "user") as db:
        db.produce("guarded", b"v")
    with connected(guarded, "reader") as db:
        assert len(list(db.consume("guarded", follow=False))) == 1
        with pytest.raises(flymq.Unauthorized):
            db.produce("guarded", b"mine")
        with pytest.raises(http.Unauthorized):
            db.admin.users.list()
        with pytest.raises(flymq.Unauthorized), db.transaction() as transaction:
            transaction.produce("guarded", b"mine")


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": "ann", "password": "wrong"},
        {"key": "pk_1_nothing"},
        {"token": "a.b.c"},
        {"user": "eve", "password": "x"},
    ],
)
def test_who_is_not_known_gets_no_connection(guarded: Guarded, wrong: dict[str, str]) -> None:
    with pytest.raises(flymq.LoginFailed, match="invalid username or password"):
        penstock.connect(guarded.address, tls=guarded.ca, **wrong)  # type: ignore[arg-type]

    async def main() -> None:
        await penstock.aconnect(guarded.address, tls=guarded.ca, **wrong)  # type: ignore[arg-type]

    with pytest.raises(flymq.LoginFailed):
        asyncio.run(main())


def test_a_wrong_password_at_a_queue_is_a_wrong_key(guarded: Guarded) -> None:
    host, _, port = guarded.address.rpartition(":")
    tls = connected(guarded, "user").options.tls
    with (
        blipmq.Client(host, int(port), key="Basic YW5uOndyb25n", tls=tls) as client,
        pytest.raises(penstock.PenstockError, match="invalid API key"),
    ):
        client.connect()


def test_nobody_may_nothing_and_without_tls_there_is_no_way_in(guarded: Guarded) -> None:
    with penstock.connect(guarded.address, tls=guarded.ca) as db, pytest.raises(flymq.AuthenticationRequired):
        db.produce("guarded", b"v")
    with pytest.raises(penstock.PenstockError):
        penstock.connect(guarded.address, timeout=5, **guarded.who["key"])  # type: ignore[arg-type]
    with pytest.raises(penstock.PenstockError, match="certificate"):
        penstock.connect(guarded.address, tls=True, **guarded.who["key"])  # type: ignore[arg-type]


def test_secrets_are_not_shown(guarded: Guarded) -> None:
    with connected(guarded, "user") as db:
        assert PASSWORD not in repr(db.options)
    with connected(guarded, "key") as db:
        assert guarded.who["key"]["key"] not in repr(db.options)
