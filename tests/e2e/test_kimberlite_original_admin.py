"""The rest of what the original's Python client (0.9.1) offers: tables, tenants, keys, tokens, the audit log, what is
not served here; and what a client finds again after the broker was killed."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from kimberlite.admin import ColumnInfo, MaskingStrategy
from kimberlite.audit_context import AuditContext, run_with_audit
from kimberlite.compliance import AuditEntry, ConsentBasis
from tests.e2e.test_kimberlite import Peer
from tests.launcher import BrokerProcess, penstock

from kimberlite import (
    AuthenticationError,
    Client,
    DataClass,
    InternalError,
    KimberliteError,
    Offset,
    StreamId,
    TenantId,
    Value,
)
from kimberlite import ConnectionError as ConnectionLost
from penstock.clients.flymq import Client as FlyMqClient
from penstock.wire.kimberlite import messages as m

ME = TenantId(42)
HOUR = 3_600_000_000_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("original"), PENSTOCK_SECURITY__AUDIT="on") as broker:
        yield broker.ready().address("kimberlite")


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    client = Client.connect([address], ME)
    yield client
    client.disconnect()


def events(client: Client, stream: StreamId) -> list[bytes]:
    return [event.data for event in client.read(stream)]


# -- what there is


def test_the_server_tells_of_itself(client: Client) -> None:
    info = client.admin.server_info()
    assert (info.protocol_version, info.cluster_mode) == (5, "Standalone")
    assert {"query", "append", "subscribe", "query_at", "sync"} <= set(info.capabilities)
    assert re.fullmatch(r"penstock \d+\.\d+\.\d+\S*", info.build_version) and info.uptime_secs < 600


def test_tables(client: Client) -> None:
    client.create_stream("listed", DataClass.PUBLIC)
    client.execute("CREATE TABLE listed_too (id BIGINT, at TIMESTAMP, name TEXT NOT NULL, PRIMARY KEY (id, at))")
    tables = {table.name: table.column_count for table in client.admin.list_tables()}
    assert (tables["listed"], tables["listed_too"]) == (4, 3)
    assert client.admin.describe_table("listed_too").columns == [
        ColumnInfo("id", "BIGINT", nullable=False, primary_key=True),
        ColumnInfo("at", "TIMESTAMP_NS", nullable=False, primary_key=True),
        ColumnInfo("name", "VARCHAR", nullable=False, primary_key=False),
    ]
    assert [column.name for column in client.admin.describe_table("listed").columns] == [
        "offset", "timestamp", "key", "data",
    ]  # fmt: skip
    assert [index.columns for index in client.admin.list_indexes("listed_too")] == [["id", "at"]]
    assert client.admin.list_indexes("listed") == []
    for name in ("nowhere", 'a"; DROP TABLE listed_too; --', ""):
        for ask in (client.admin.describe_table, client.admin.list_indexes):
            with pytest.raises(KimberliteError):
                ask(name)
    assert "listed_too" in [table.name for table in client.admin.list_tables()]


# -- tenants and keys


def test_tenants(address: str, client: Client) -> None:
    admin, seven = client.admin, TenantId(7)
    made = admin.create_tenant(seven, "seven")
    assert made.created and made.tenant.name == "seven" and made.tenant.created_at_nanos is not None
    assert abs(made.tenant.created_at_nanos - time.time_ns()) < HOUR
    assert not admin.create_tenant(seven, "seven").created
    with pytest.raises(InternalError):  # how it tells code 21
        admin.create_tenant(seven, "another")
    with Client.connect([address], seven) as theirs:
        theirs.create_stream("theirs", DataClass.PUBLIC)
    assert admin.get_tenant(seven).table_count == 1
    assert seven in [tenant.tenant_id for tenant in admin.list_tenants()]
    deleted = admin.delete_tenant(seven)
    assert (deleted.deleted, deleted.tables_dropped) == (True, 1)
    for ask in (admin.get_tenant, admin.delete_tenant):
        with pytest.raises(KimberliteError) as caught:
            ask(seven)
        assert caught.value.is_not_found()


def test_keys(client: Client) -> None:
    admin, until = client.admin, time.time_ns() // 1000 * 1000 + HOUR
    issued = admin.issue_api_key("app", ME, ["User"])
    passing = admin.issue_api_key("passing", ME, ["Analyst", "Auditor"], until)
    assert (passing.info.roles, passing.info.expires_at_nanos) == (["Analyst", "Auditor"], until)
    for wrong in (["Emperor"], []):
        with pytest.raises(KimberliteError):
            admin.issue_api_key("nobody", ME, wrong)
    rotated = admin.rotate_api_key(issued.key)
    assert rotated.info.subject == "app" and rotated.new_key != issued.key
    with pytest.raises(KimberliteError):
        admin.rotate_api_key(issued.key)
    assert sorted(key.subject for key in admin.list_api_keys(ME)) == ["app", "passing"]
    assert admin.revoke_api_key(rotated.new_key) and not admin.revoke_api_key(rotated.new_key)
    assert admin.revoke_api_key(passing.key)
    assert admin.list_api_keys(ME) == []


# -- the audit log


def noted(client: Client, count: int, **asked: Any) -> list[AuditEntry]:
    """The audit events, once they are committed: a request that reads does not wait for its event."""
    until, found = time.monotonic() + 20, list[AuditEntry]()
    while len(found) < count:
        found = client.compliance.audit.query(**asked)
        assert time.monotonic() < until, found
        time.sleep(0.01)
    return found


def test_who_did_what_and_why(client: Client) -> None:
    audit, began = client.compliance.audit, time.time_ns()
    with run_with_audit(AuditContext(actor="dr@x", reason="chart", correlation_id="c-1")):
        stream = client.create_stream("charts", DataClass.PHI)
        client.append(stream, [b"x"])
        client.read(stream)
    found = noted(client, 3, actor="dr@x", subject_id="charts")
    assert [event.action for event in found] == ["stream.read", "stream.append", "topic.create"]
    assert {(event.subject_id, event.reason, event.correlation_id, event.tenant_id) for event in found} == {
        ("charts", "chart", "c-1", ME)
    }
    assert [event.action for event in audit.query(subject_id="charts", action="topic", limit=5)] == ["topic.create"]
    assert len(audit.query(limit=2)) == 2
    assert audit.query(actor="dr@x", time_to_nanos=began - HOUR) == []
    client.query_break_glass("code blue", "SELECT 1")
    assert noted(client, 1, action="query.break_glass")[0].reason == "code blue"
    report = audit.generate_report(began - HOUR, began + HOUR)
    assert report.by_actor["dr@x"] >= 3 and "dr@x" in report.to_markdown()


def test_a_long_audit_log_fits_its_buffer(client: Client) -> None:
    stream = client.create_stream("busy", DataClass.PUBLIC)
    for number in range(400):
        with run_with_audit(AuditContext(actor="clerk", reason="r" * 200, correlation_id=f"{number:040}")):
            client.append(stream, [b"x"], Offset(number))
    found = client.compliance.audit.query(actor="clerk", limit=1000)
    assert 250 < len(found) < 390
    newest = int(found[0].correlation_id or 0)  # the last ones may not be committed yet
    assert newest > 390
    assert [event.correlation_id for event in found] == [f"{newest - at:040}" for at in range(len(found))]


# -- what is not served here


NOT_SERVED: dict[str, Callable[[Client], Any]] = {
    "explain": lambda client: client.query_explain("SELECT 1"),
    "upsert": lambda client: client.upsert_row("t", ["id", "x"], [Value.bigint(1), Value.text("x")]),
    "grant": lambda client: client.compliance.consent.grant("eve", "Marketing"),
    "grant with basis": lambda client: client.compliance.consent.grant(
        "eve", "Emergency", ConsentBasis("VitalInterests", "why"), terms_version="1", accepted=False
    ),
    "withdraw": lambda client: client.compliance.consent.withdraw("id"),
    "check": lambda client: client.compliance.consent.check("eve", "Treatment"),
    "consents": lambda client: client.compliance.consent.list("eve", valid_only=True),
    "erasure": lambda client: client.compliance.erasure.request("eve"),
    "erasure status": lambda client: client.compliance.erasure.status("id"),
    "erasure mark": lambda client: client.compliance.erasure.mark_stream_erased("id", 1, 2),
    "erasure complete": lambda client: client.compliance.erasure.complete("id"),
    "erasure exempt": lambda client: client.compliance.erasure.exempt("id", "LegalClaims"),
    "erasure list": lambda client: client.compliance.erasure.list(),
    "erasure in one": lambda client: client.compliance.erasure.erase_subject("eve", lambda _stream: 0),
    "export": lambda client: client.compliance.export.for_subject("eve", "me", format="Csv", stream_ids=[1, 2]),
    "mask": lambda client: client.admin.masking_policy.create("p", MaskingStrategy("RedactSsn"), ["Admin"]),
    "mask attach": lambda client: client.admin.masking_policy.attach("t", "x", "p"),
    "mask detach": lambda client: client.admin.masking_policy.detach("t", "x"),
    "mask drop": lambda client: client.admin.masking_policy.drop("p"),
    "masks": lambda client: client.admin.masking_policy.list(include_attachments=True),
}


@pytest.mark.parametrize("what", NOT_SERVED)
def test_what_is_not_served_is_an_error_and_nothing_more(client: Client, what: str) -> None:
    with pytest.raises(KimberliteError) as caught:
        NOT_SERVED[what](client)
    assert caught.value.code in (9, 13)  # a server's answer, not a lost connection
    client.create_stream("still-there", DataClass.PUBLIC)
    assert client.admin.server_info().protocol_version == 5


# -- tokens


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A secret, and a pair of keys."""
    place = tmp_path_factory.mktemp("keys")
    (place / "secret").write_text("s" * 32)
    key, pem = ed25519.Ed25519PrivateKey.generate(), serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (place / "private").write_bytes(private)
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (place / "public").write_bytes(public)
    (place / "stranger").write_text("t" * 32)
    return place


def issued(keys: Path, signer: str, *roles: str, tenant: int = ME) -> str:
    named = [part for role in roles for part in ("--role", role)]
    done = penstock("token", "issue", "alice", "--key", str(keys / signer), *named, "--tenant", str(tenant))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def guarded(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    taken = f"{keys / 'secret'},{keys / 'public'}"
    settings = {"PENSTOCK_SECURITY__MODE": "on", "PENSTOCK_SECURITY__TOKEN_KEYS": taken}
    with BrokerProcess(tmp_path_factory.mktemp("guarded"), **settings) as broker:
        yield broker.ready().address("kimberlite")


@pytest.mark.parametrize("signer", ["secret", "private"])
def test_tokens_and_the_keys_that_an_administrator_issues(guarded: str, keys: Path, signer: str) -> None:
    with Client.connect([guarded], ME, auth_token=issued(keys, signer, "Admin")) as admin:
        stream = admin.create_stream(f"hers-{signer}", DataClass.PHI)
        admin.append(stream, [b"x"])
        key = admin.admin.issue_api_key("app", ME, ["User", "phi"]).key
        modest = admin.admin.issue_api_key("modest", ME, ["User"]).key
        with Client.connect([guarded], ME, auth_token=key) as app:
            assert events(app, stream) == [b"x"]
            with pytest.raises(AuthenticationError):
                app.admin.issue_api_key("more", ME, ["Admin"])
            admin.admin.revoke_api_key(key)
            with pytest.raises(AuthenticationError):
                events(app, stream)
        with Client.connect([guarded], ME, auth_token=modest) as app:
            with pytest.raises(AuthenticationError):
                events(app, stream)
            own = app.create_stream(f"own-{signer}", DataClass.PUBLIC)
            app.append(own, [b"y"])
            assert events(app, own) == [b"y"]
        assert noted(admin, 1, action="access.denied")[0].ip_address == "127.0.0.1"


def test_nobody_may_do_nothing(guarded: str) -> None:
    with Client.connect([guarded], ME) as nobody:  # it does not look whether it was let in
        for attempt in (
            lambda: nobody.read(StreamId(1)),
            lambda: nobody.create_stream("x", DataClass.PUBLIC),
            lambda: nobody.query("SELECT 1"),
            lambda: nobody.subscribe(StreamId(1)),
            lambda: nobody.admin.server_info(),
            lambda: nobody.admin.list_tables(),
            lambda: nobody.compliance.audit.query(),
        ):
            with pytest.raises(AuthenticationError):
                attempt()


def test_a_token_is_for_its_tenant(guarded: str, keys: Path) -> None:
    token = issued(keys, "secret", "Admin")
    with pytest.raises(AuthenticationError):
        Client.connect([guarded], TenantId(43), auth_token=token)
    Client.connect([guarded], ME, auth_token=token).disconnect()


@pytest.mark.parametrize("kind", ["stranger", "changed", "key", "dots"])
def test_a_token_that_is_not_good(guarded: str, keys: Path, kind: str) -> None:
    good = issued(keys, "secret", "Admin")
    stranger = issued(keys, "stranger", "Admin")
    changed = good[:-4] + ("AAAA" if good[-4:] != "AAAA" else "BBBB")
    token = {"stranger": stranger, "changed": changed, "key": "psk_1_wrong", "dots": "a.b.c"}[kind]
    with pytest.raises(AuthenticationError):
        Client.connect([guarded], ME, auth_token=token)
    Client.connect([guarded], ME, auth_token=good).disconnect()  # and not because it is locked out by now


# -- other doors, and the end


def test_events_of_another_door_and_why_a_subscription_ends(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, PENSTOCK_KIMBERLITE__TENANTS="42=default") as broker:
        address = broker.ready().address("kimberlite")
        with Client.connect([address], ME) as client, FlyMqClient(*broker.endpoint("flymq")) as flymq:
            streams = [client.create_stream(name, DataClass.PUBLIC) for name in ("brief", "lasting")]
            brief = client.subscribe(streams[0])
            flymq.produce("brief", b"from elsewhere", partition=0)
            event = brief.next_event()
            assert event is not None and (event.offset, event.data) == (0, b"from elsewhere")
            flymq.delete_topic("brief")
            assert brief.next_event() is None and brief.close_reason == "StreamDeleted"
            lasting = client.subscribe(streams[1])
            broker.signal(signal.SIGTERM)
            assert lasting.next_event() is None and lasting.close_reason == "ServerShutdown"
            assert broker.finish()[0] == 0
            with pytest.raises(ConnectionLost):
                client.read(streams[1])


# -- after a kill


def test_everything_is_there_after_a_kill(tmp_path: Path, keys: Path) -> None:
    settings = {"PENSTOCK_SECURITY__MODE": "on", "PENSTOCK_SECURITY__TOKEN_KEYS": str(keys / "secret")}
    token = issued(keys, "secret", "Admin")
    with BrokerProcess(tmp_path, **settings) as broker:
        address = broker.ready().address("kimberlite")
        with Client.connect([address], ME, auth_token=token) as client:
            stream = client.create_stream("kept", DataClass.PHI)
            client.append(stream, [b"%d" % number for number in range(10)])
            client.execute("CREATE TABLE people (id BIGINT PRIMARY KEY, name TEXT)")
            position = client.execute("INSERT INTO people VALUES (1, 'Ada')").log_offset
            client.execute("INSERT INTO people VALUES (2, 'Bo')")
            key = client.admin.issue_api_key("app", ME, ["Admin"]).key
            gone = client.admin.issue_api_key("gone", ME, ["Admin"]).key
            client.admin.revoke_api_key(gone)
            audited = [event.event_id for event in client.compliance.audit.query(action="key")]
            assert len(audited) == 3
        seen(broker, token, stream, 0, 4)  # this client cannot name a group
        broker.signal(signal.SIGKILL)
        broker.finish()
    with BrokerProcess(tmp_path, **settings) as broker:
        address = broker.ready().address("kimberlite")
        with pytest.raises(AuthenticationError):
            Client.connect([address], ME, auth_token=gone)
        with Client.connect([address], ME, auth_token=key) as client:
            assert client.create_stream("kept", DataClass.PHI) == stream
            assert events(client, stream) == [b"%d" % number for number in range(10)]
            assert client.append(stream, [b"10"], Offset(10)) == 10
            select = "SELECT name FROM people ORDER BY id"
            assert client.query(select).rows == [[Value.text("Ada")], [Value.text("Bo")]]
            assert client.query_at(select, [], position).rows == [[Value.text("Ada")]]
            assert client.execute("INSERT INTO people VALUES (3, 'Cy')").rows_affected == 1
            assert [column.primary_key for column in client.admin.describe_table("people").columns] == [True, False]
            assert [info.subject for info in client.admin.list_api_keys(ME)] == ["app"]
            tenant = client.admin.get_tenant(ME)
            assert tenant.table_count >= 2
            assert [event.event_id for event in client.compliance.audit.query(action="key")] == audited
        seen(broker, token, stream, 4, 7)


def seen(broker: BrokerProcess, token: str, stream: int, start: int, count: int) -> None:
    """A member of a group gets that many events from there on, and says that it is done with them."""
    with Peer(broker.endpoint("kimberlite"), token=token, tenant=ME) as peer:
        subscribed = peer.ask(m.Subscribe(stream, 0, count, "workers"))
        assert isinstance(subscribed, m.SubscribeResponse) and subscribed.start_offset == start
        for number in range(start, start + count):
            pushed = peer.push()
            assert isinstance(pushed, m.SubscriptionEvents)
            assert (pushed.start_offset, pushed.events) == (number, [b"%d" % number])
        assert isinstance(peer.ask(m.SubscribeCredit(subscribed.subscription_id, count)), m.SubscriptionAck)
