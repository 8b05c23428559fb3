"""Permissions at the Flight door: every call by every user, keys that expire, hosts that guess, and TLS."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyarrow import flight
from tests.launcher import BrokerProcess, penstock
from tests.transport.certificates import Authority
from tests.workers.flight.seeded_flight_broker import ACME, OPEN, Maker, client, get, made

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security.access import ADMINISTRATOR, Permission
from penstock.broker.security.key import KeyTerms

SECURED = {"PENSTOCK_SECURITY__MODE": "on"}
NOBODY, WRONG, DENIED = "nobody", "wrong", "denied"

Call = Callable[[Any, Any], Any]


class Guarded(NamedTuple):
    broker: BrokerProcess
    flight: Any
    data_dir: Path
    who: dict[str, list[tuple[bytes, bytes]]]  # → what they show


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + key.encode())]


def basic(user: str, password: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Basic " + base64.b64encode(f"{user}:{password}".encode()))]


def key(maker: Maker, name: str, *permissions: Permission, tenant: str = "default", topic: str = "*") -> str:
    terms = KeyTerms(name, tenant=tenant, topics=(topic,), permissions=tuple(permissions))
    made_key, _ = maker.broker.keys.add(ADMINISTRATOR, terms)
    maker.commit()
    return made_key.secret


def user(maker: Maker, name: str, role: str) -> None:
    work = maker.broker.users.create(ADMINISTRATOR, "default", name, f"password of {name}", [role])
    work.run()
    work.finish()
    maker.commit()


def settle(maker: Maker) -> dict[str, list[tuple[bytes, bytes]]]:
    maker.topic("orders", 2)
    maker.append("orders", [b"1", b"2"])
    maker.topic("secret")
    maker.topic("orders", 1, ACME)
    maker.append("orders", [b"of acme"], scope=ACME)
    work = maker.broker.schemas.register(ADMINISTRATOR, DEFAULT_SCOPE, "orders", SchemaKind.JSON, b"{}")
    work.run()
    work.finish()
    maker.commit()
    for name, role in (("ann", "consumer"), ("bob", "producer")):
        user(maker, name, role)
    looks = (Permission.READ, Permission.DESCRIBE, Permission.COMMIT)
    here = (b"x-penstock-tenant", b"default")
    return {
        "nobody": [],
        "wrong key": bearer("pk_1_nothing"),
        "wrong password": basic("ann", "password of bob"),
        "reader": bearer(key(maker, "reader", *looks, topic="orders")),
        "consumer": basic("ann", "password of ann"),
        "producer": basic("bob", "password of bob"),
        "writer": bearer(key(maker, "writer", Permission.WRITE)),
        "acme": [*bearer(key(maker, "acme", Permission.ADMIN, tenant="acme")), here],
        "at home": bearer(key(maker, "home", *looks, tenant="acme")),
        "ending": bearer(key(maker, "ending", *looks)),
    }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    path = tmp_path_factory.mktemp("guarded")
    with made(path) as maker:
        who = settle(maker)
    with BrokerProcess(path, *OPEN, PENSTOCK_SECURITY__LOCKOUT_FAILURES="0", **SECURED) as broker:
        yield Guarded(broker.ready(), client(broker), path, who)


def action(name: str, **body: Any) -> Call:
    return lambda connection, options: list(
        connection.do_action(flight.Action(name, json.dumps(body).encode()), options)
    )


def put(connection: Any, options: Any) -> Any:
    descriptor = flight.FlightDescriptor.for_command(b'{"topic": "orders"}')
    schema = pa.schema([("value", pa.binary())])
    writer, answers = connection.do_put(descriptor, schema, options)
    try:
        writer.write_batch(pa.record_batch([pa.array([b"x"])], schema=schema))
        writer.done_writing()
        answer = json.loads(answers.read().to_pybytes())
    finally:
        writer.close()
    assert answer["rows"] == 1
    return answer


PLACE = {"topic": "orders", "partition": 0}
CALLS: dict[str, Call] = {
    "list": lambda connection, options: [it.descriptor.path[0] for it in connection.list_flights(b"", options)],
    "info": lambda connection, options: connection.get_flight_info(flight.FlightDescriptor.for_path("orders"), options),
    "schema of records": lambda connection, options: connection.get_schema(
        flight.FlightDescriptor.for_path("orders"), options
    ),
    "get": lambda connection, options: get(connection, "orders", options=options, end=1).read_all(),
    "put": put,
    "topics": action("topics"),
    "bounds": action("bounds", topics=["orders"]),
    "offsets-at": action("offsets-at", at=[{**PLACE, "timestamp": 0}]),
    "fitting": action("fitting", ranges=[{**PLACE, "start": 0, "end": 2}], max_bytes=1),
    "schema": action("schema", subject="orders"),
    "table": action("table", topic="orders"),
    "commit-offsets": action("commit-offsets", group="g", offsets=[{**PLACE, "offset": 1}]),
}
LOOKING = {"list", "info", "schema of records", "topics", "bounds", "schema"}  # what takes DESCRIBE and no more
READING = LOOKING | {"get", "offsets-at", "fitting", "table", "commit-offsets"}
MAY = {
    "nobody": set(),
    "wrong key": set(),
    "wrong password": set(),
    "reader": READING,
    "consumer": READING,
    "producer": LOOKING | {"put"},
    "writer": {"put"},
    "acme": set(),
}
UNKNOWN = {"nobody", "wrong key", "wrong password"}


@pytest.mark.parametrize("who", MAY)
@pytest.mark.parametrize("call", CALLS)
def test_everybody_may_do_what_they_may_and_nothing_else(guarded: Guarded, who: str, call: str) -> None:
    options = flight.FlightCallOptions(headers=guarded.who[who])
    if call in MAY[who]:
        CALLS[call](guarded.flight, options)
        return
    kind = flight.FlightUnauthenticatedError if who in UNKNOWN else flight.FlightUnauthorizedError
    if call == "schema of records":
        kind = pa.ArrowException  # pyarrow's server cannot tell kinds there
    with pytest.raises(kind) as refused:
        CALLS[call](guarded.flight, options)
    assert "Traceback" not in str(refused.value) and "Internal" not in str(refused.value).split("gRPC")[0]


def test_nobody_publishes_or_discards_what_is_another_s(guarded: Guarded) -> None:
    for who in MAY:
        for name in ("publish", "discard"):
            options = flight.FlightCallOptions(headers=guarded.who[who])
            with pytest.raises((flight.FlightError, pa.ArrowException)):
                action(name, app="another's", batch=1, refs=["0" * 32])(guarded.flight, options)


def test_a_denial_does_not_tell_whether_a_topic_exists(guarded: Guarded) -> None:
    options = flight.FlightCallOptions(headers=guarded.who["reader"])
    said = []
    for topic in ("secret", "secrex"):
        with pytest.raises(flight.FlightUnauthorizedError) as refused:
            get(guarded.flight, topic, options=options).read_all()
        said.append(str(refused.value).replace(topic, "TOPIC"))
    assert said[0] == said[1] and "may not read" in said[0]
    assert CALLS["list"](guarded.flight, options) == [b"orders"]


def test_a_typed_table_is_for_those_who_may_read_its_topic(guarded: Guarded) -> None:
    """`orders` has no schema, which only they are told."""
    for who, may in MAY.items():
        options = flight.FlightCallOptions(headers=guarded.who[who])
        kind = flight.FlightUnauthenticatedError if who in UNKNOWN else flight.FlightUnauthorizedError
        with pytest.raises(pa.ArrowException if "get" in may else kind) as refused:
            get(guarded.flight, "orders_typed", options=options).read_all()
        assert ("Topic 'orders' has no schema" in str(refused.value)) == ("get" in may), who
    options = flight.FlightCallOptions(headers=guarded.who["reader"])
    said = []
    for topic in ("secret_typed", "secrex_typed"):
        with pytest.raises(flight.FlightUnauthorizedError) as refused:
            get(guarded.flight, topic, options=options).read_all()
        said.append(str(refused.value).replace(topic, "TOPIC"))
    assert said[0] == said[1] and "may not read" in said[0]


def test_a_key_is_at_home_in_its_own_tenant(guarded: Guarded) -> None:
    options = flight.FlightCallOptions(headers=guarded.who["at home"])
    assert get(guarded.flight, "orders", options=options).read_all()["value"].to_pylist() == [b"of acme"]


def test_a_revoked_key_ends_at_once(guarded: Guarded) -> None:
    options = flight.FlightCallOptions(headers=guarded.who["ending"])
    assert len(get(guarded.flight, "orders", options=options, end=2).read_all()) == 2
    listed = penstock("keys", "list", "--data-dir", str(guarded.data_dir)).stdout
    number = next(line.split("\t")[0] for line in listed.splitlines() if "\tending\t" in line)
    assert penstock("keys", "revoke", number, "--data-dir", str(guarded.data_dir)).returncode == 0
    with pytest.raises(flight.FlightUnauthorizedError):
        get(guarded.flight, "orders", options=options, end=2).read_all()


def test_a_login_gives_a_token_and_that_is_proved_when_it_is_used(guarded: Guarded) -> None:
    right = guarded.flight.authenticate_basic_token("ann", "password of ann")
    assert CALLS["list"](guarded.flight, flight.FlightCallOptions(headers=[right])) == [b"orders", b"secret"]
    wrong = guarded.flight.authenticate_basic_token("ann", "password of bob")
    for header in (wrong, (b"authorization", b"Bearer penstock-flight-made-up")):
        with pytest.raises(flight.FlightUnauthenticatedError):
            CALLS["list"](guarded.flight, flight.FlightCallOptions(headers=[header]))


def test_logins_and_denials_are_in_the_audit_log(guarded: Guarded) -> None:
    for who, call in (("consumer", "get"), ("wrong password", "get"), ("writer", "get")):
        options = flight.FlightCallOptions(headers=guarded.who[who])
        with pytest.raises(flight.FlightError) if who != "consumer" else _fine():
            CALLS[call](guarded.flight, options)
    audited = penstock("audit", "--data-dir", str(guarded.data_dir), "--limit", "1000")
    assert audited.returncode == 0, audited.stderr
    for what in ("auth.success", "auth.failure", "access.denied"):
        assert any(what in line and "127.0.0.1" in line for line in audited.stdout.splitlines()), what


class _fine:  # noqa: N801 - in the place of a function
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


# -- TLS, and hosts that guess


def test_tls_with_the_broker_s_certificate_and_one_for_the_client(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "another authority")
    server, known, unknown = authority.issue("server"), authority.issue("client"), stranger.issue("stranger")
    with made(tmp_path / "data") as maker:
        who = settle(maker)
    tls = {"CERT": server.cert, "KEY": server.key, "CLIENT_CA": authority.path}
    environment = {f"PENSTOCK_TLS__{name}": text for name, text in tls.items()}
    with BrokerProcess(tmp_path / "data", *OPEN, **environment, **SECURED) as broker:
        broker.ready()
        options = flight.FlightCallOptions(timeout=5, headers=who["reader"])

        def ask(cert: Any, trusted: str) -> Any:
            given = {} if cert is None else {"cert_chain": _read(cert.cert), "private_key": _read(cert.key)}
            connection = client(broker, tls_root_certs=_read(trusted), **given)
            return CALLS["list"](connection, options)

        assert ask(known, authority.path) == [b"orders"]
        for cert, trusted in ((None, authority.path), (unknown, authority.path), (known, stranger.path)):
            with pytest.raises(flight.FlightError):
                ask(cert, trusted)
        with pytest.raises(flight.FlightError):
            CALLS["list"](client(broker), options)  # plain text
        _lock_out(broker, authority.path, known, who)


def _lock_out(broker: BrokerProcess, trusted: str, known: Any, who: dict[str, list[tuple[bytes, bytes]]]) -> None:
    """A host that guesses at a key is locked out for that key; its valid keys are accepted."""
    given = {"cert_chain": _read(known.cert), "private_key": _read(known.key)}
    connection = client(broker, tls_root_certs=_read(trusted), **given)
    for number in range(5):
        with pytest.raises(flight.FlightUnauthenticatedError, match="wrong"):
            CALLS["list"](connection, flight.FlightCallOptions(headers=bearer(f"psk_1_{number}")))
    with pytest.raises(flight.FlightUnauthenticatedError, match="too many failed attempts"):
        CALLS["list"](connection, flight.FlightCallOptions(headers=bearer("psk_1_9")))
    CALLS["list"](connection, flight.FlightCallOptions(headers=who["consumer"]))


def _read(path: str) -> bytes:
    return Path(path).read_bytes()
