"""The Kimberlite door of the real broker: other doors to the same events, a kill in between, tokens, TLS, limits."""

from __future__ import annotations

import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from tests.launcher import BrokerProcess, penstock
from tests.transport.certificates import Authority

from penstock.clients.flymq import Client as FlyMqClient
from penstock.clients.rustlog import Client as RustLogClient
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import ClientCodec
from penstock.wire.kimberlite.messages import DataClass, ErrorCode

DIALECTS = ("v0.1", "seed", "seed/bincode", "seed/postcard", "v0.4", "v2", "v3", "v4", "5a", "5b")
DEFAULT = {"PENSTOCK_KIMBERLITE__TENANTS": "42=default"}  # where protocols without tenants are


class Peer:
    """A client that does nothing of itself."""

    def __init__(
        self,
        endpoint: tuple[str, int],
        dialect: str = "5b",
        tenant: int = 42,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.wire = ClientCodec(dialect)
        self.tenant = tenant
        self.pushed: list[m.Message] = []
        self._id = 0
        self._socket = socket.create_connection(endpoint, timeout=40)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
        self.greeting = self.ask(m.Handshake(self.wire.version, token))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, *payloads: m.Message) -> None:
        data = b""
        for payload in payloads:
            self._id += 1
            data += self.wire.request(self._id, self.tenant, payload)
        self._socket.sendall(data)

    def receive(self) -> m.Message:
        """The next answer; pushes that come before it are put aside."""
        while True:
            message = self.wire.next()
            if isinstance(message, m.Response):
                return message.payload
            if message is not None:
                self.pushed.append(message.payload)
            else:
                self._more()

    def push(self) -> m.Message:
        while not self.pushed:
            message = self.wire.next()
            if isinstance(message, m.Push):
                self.pushed.append(message.payload)
            elif message is None:
                self._more()
        return self.pushed.pop(0)

    def _more(self) -> None:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("closed")
        self.wire.feed(data)

    def ask(self, payload: m.Message) -> m.Message:
        self.send(payload)
        return self.receive()

    def create(self, name: str) -> int:
        made = self.ask(m.CreateStream(name, DataClass.DEIDENTIFIED, m.Everywhere()))
        assert isinstance(made, m.CreateStreamResponse), made
        return made.stream_id


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests that only need one; each has streams of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("kimberlite"), **DEFAULT) as broker:
        yield broker.ready()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_specifications_session_in_every_dialect(broker: BrokerProcess, dialect: str) -> None:
    name = "events_" + "".join(letter for letter in dialect if letter.isalnum())
    with Peer(broker.endpoint("kimberlite"), dialect) as peer:
        assert isinstance(peer.greeting, m.HandshakeResponse) and peer.greeting.authenticated
        number = peer.create(name)
        assert peer.ask(m.AppendEvents(number, [b"event1", b"event2"], 0)) == m.AppendEventsResponse(0, 2)
        counted = peer.ask(m.Query(f"SELECT COUNT(*) as count FROM {name}", []))
        assert counted == m.QueryResponse(["count"], [[2]])
        assert peer.ask(m.ReadEvents(number, 0, 1 << 20)) == m.ReadEventsResponse([b"event1", b"event2"], None)
        assert peer.ask(m.Sync()) == m.SyncResponse(True)


def test_streams_are_topics_of_the_other_doors(broker: BrokerProcess) -> None:
    with Peer(broker.endpoint("kimberlite")) as peer, RustLogClient(*broker.endpoint("rustlog")) as rustlog:
        number = peer.create("shared")
        peer.ask(m.AppendEvents(number, [b"one"], 0))
        assert rustlog.produce("shared", 0, [b"two"]).base_offset == 1
        with FlyMqClient(*broker.endpoint("flymq")) as flymq:
            assert flymq.consume("shared", 0, 0).value == b"one"
            flymq.produce("from_flymq", b"three", partition=0)
        assert peer.ask(m.ReadEvents(number, 0, 100)) == m.ReadEventsResponse([b"one", b"two"], None)
        other = peer.create("from_flymq")
        assert peer.ask(m.ReadEvents(other, 0, 100)) == m.ReadEventsResponse([b"three"], None)


def test_a_table_of_sql_is_written_read_and_looked_back_at(broker: BrokerProcess) -> None:
    with Peer(broker.endpoint("kimberlite")) as peer:

        def rows(payload: m.Message) -> list[list[object]]:
            assert isinstance(payload, m.QueryResponse | m.QueryAtResponse), payload
            return [list(row) for row in payload.rows]

        rows(peer.ask(m.Query("CREATE TABLE people (id BIGINT PRIMARY KEY, name VARCHAR)", [])))
        ((affected, position),) = rows(peer.ask(m.Query("INSERT INTO people VALUES ($1, $2)", [1, "Ada"])))
        assert affected == 1 and isinstance(position, int)
        rows(peer.ask(m.Query("INSERT INTO people VALUES (2, 'Bo')", [])))
        assert rows(peer.ask(m.Query("SELECT * FROM people ORDER BY id", []))) == [[1, "Ada"], [2, "Bo"]]
        assert rows(peer.ask(m.QueryAt("SELECT name FROM people", [], position))) == [["Ada"]]
        described = peer.ask(m.DescribeTable("people"))
        assert isinstance(described, m.DescribeTableResponse)
        assert [(column.name, column.primary_key) for column in described.columns] == [("id", True), ("name", False)]
        listed = peer.ask(m.ListTables())
        assert isinstance(listed, m.ListTablesResponse)
        assert m.TableSummary("people", 2) in listed.tables
        for sql, code in (
            ("SELEC 1", ErrorCode.QUERY_PARSE_ERROR),
            ("SELECT * FROM nowhere", ErrorCode.TABLE_NOT_FOUND),
            ("DELETE FROM people", ErrorCode.QUERY_EXECUTION_ERROR),
        ):
            refused = peer.ask(m.Query(sql, []))
            assert isinstance(refused, m.ErrorResponse) and refused.code == code, (sql, refused)
        ahead = peer.ask(m.QueryAt("SELECT 1", [], 1 << 60))
        assert isinstance(ahead, m.ErrorResponse) and ahead.code == ErrorCode.POSITION_AHEAD


def test_events_are_pushed_as_they_come(broker: BrokerProcess) -> None:
    endpoint = broker.endpoint("kimberlite")
    with Peer(endpoint) as reader, Peer(endpoint, "v0.4") as writer:
        number = writer.create("watched")
        subscribed = reader.ask(m.Subscribe(number, 0, 3))
        assert isinstance(subscribed, m.SubscribeResponse)
        writer.ask(m.AppendEvents(number, [b"a", b"b"], 0))
        for offset, event in enumerate((b"a", b"b")):
            assert reader.push() == m.SubscriptionEvents(subscribed.subscription_id, offset, [event], 2 - offset)


def test_many_appends_at_once_are_answered_in_order(broker: BrokerProcess) -> None:
    with Peer(broker.endpoint("kimberlite")) as peer:
        number = peer.create("pipelined")
        event = b"x" * 1024
        peer.send(*[m.AppendEvents(number, [event] * 10, 10 * turn) for turn in range(200)])
        assert [peer.receive() for _ in range(200)] == [m.AppendEventsResponse(10 * turn, 10) for turn in range(200)]


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with Peer(broker.ready().endpoint("kimberlite")) as peer:
            number = peer.create("kept")
            peer.send(*[m.AppendEvents(number, [b"%d" % turn], turn) for turn in range(100)])
            for turn in range(100):
                assert peer.receive() == m.AppendEventsResponse(turn, 1)
        broker.signal(signal.SIGKILL)
        broker.finish()
    with BrokerProcess(tmp_path) as broker, Peer(broker.ready().endpoint("kimberlite")) as peer:
        events = [b"%d" % turn for turn in range(100)]
        assert peer.ask(m.ReadEvents(number, 0, 1 << 20)) == m.ReadEventsResponse(events, None)
        assert peer.create("kept") == number
        refused = peer.ask(m.AppendEvents(number, [b"x"], 99))
        assert isinstance(refused, m.ErrorResponse) and refused.code == ErrorCode.OFFSET_MISMATCH
        assert peer.ask(m.AppendEvents(number, [b"x"], 100)) == m.AppendEventsResponse(100, 1)
        assert peer.ask(m.StreamInfo(number)) == m.StreamInfoResponse(101)


def test_keys_and_tokens_of_one_tenant_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("broker")
    secret = tmp_path / "secret"
    secret.write_bytes(b"0123456789abcdef0123456789abcdef")
    issued = penstock("token", "issue", "alice", "--key", str(secret), "--role", "User", "--tenant", "42")
    settings = {
        "PENSTOCK_SECURITY__MODE": "on",
        "PENSTOCK_SECURITY__TOKEN_KEYS": str(secret),
        "PENSTOCK_TLS__CERT": server.cert,
        "PENSTOCK_TLS__KEY": server.key,
        "PENSTOCK_TLS__REQUIRED": "true",
    }
    with BrokerProcess(tmp_path / "data", **settings) as broker:
        endpoint, tls = broker.ready().endpoint("kimberlite"), ssl.create_default_context(cafile=authority.path)
        with Peer(endpoint, token=issued.stdout.strip(), tls=tls) as alice:
            assert isinstance(alice.greeting, m.HandshakeResponse) and alice.greeting.authenticated
            number = alice.create("hers")
            alice.ask(m.AppendEvents(number, [b"mine"], 0))
        with Peer(endpoint, token="psk_1_wrong", tls=tls) as mallory:
            assert isinstance(mallory.greeting, m.ErrorResponse)
            assert mallory.greeting.code == ErrorCode.AUTHENTICATION_FAILED
            refused = mallory.ask(m.ReadEvents(number, 0, 100))
            assert isinstance(refused, m.ErrorResponse) and refused.code == ErrorCode.AUTHENTICATION_FAILED


PRYING = (
    "SELECT * FROM secret",
    'SELECT * FROM "2".secret',
    'SELECT * FROM "2"."default".secret',
    "SELECT * FROM main.secret",
    "SHOW TABLES",
    "DESCRIBE secret",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM duckdb_tables()",
    "SELECT * FROM mine UNION ALL SELECT * FROM secret",
    "WITH x AS (SELECT * FROM secret) SELECT * FROM x",
    "INSERT INTO secret (data) VALUES ('x')",
    "DROP TABLE secret",
    "SELECT * FROM read_text('{data}/**')",
    "SELECT content FROM read_blob('{data}/journal/*')",
    "COPY (SELECT 1) TO '{data}/out.csv'",
    "ATTACH '{data}/x.db'",
    "SELECT getenv('HOME')",
)


def test_no_statement_reaches_another_tenant(tmp_path: Path) -> None:
    """Every door of the process that carries out SQL is tried with the token of an administrator of tenant 1."""
    secret, hidden = tmp_path / "secret", b'{"who": "a secret of tenant 2"}'
    secret.write_bytes(b"0123456789abcdef0123456789abcdef")
    issue = ("token", "issue", "admin", "--key", str(secret), "--role", "Admin", "--tenant")
    first, second = (penstock(*issue, tenant).stdout.strip() for tenant in ("1", "2"))
    settings = {"PENSTOCK_SECURITY__MODE": "on", "PENSTOCK_SECURITY__TOKEN_KEYS": str(secret)}
    data = tmp_path / "data"
    with BrokerProcess(data, **settings) as broker:
        endpoint = broker.ready().endpoint("kimberlite")
        with Peer(endpoint, tenant=1, token=first) as spy, Peer(endpoint, tenant=2, token=second) as owner:
            mine, theirs = spy.create("mine"), owner.create("secret")
            spy.ask(m.AppendEvents(mine, [b'{"who": "me"}'], 0))
            owner.ask(m.AppendEvents(theirs, [hidden], 0))
            owned = owner.ask(m.Query("SELECT who FROM secret", []))
            assert owned == m.QueryResponse(["who"], [["a secret of tenant 2"]])
            told: list[m.Message] = []
            for sql in PRYING:
                statement = sql.replace("{data}", str(data))
                told += [spy.ask(m.Query(statement, [])), spy.ask(m.QueryAt(statement, [], 6))]
            told += [spy.ask(m.ListTables()), spy.ask(m.DescribeTable("secret")), spy.ask(m.ListIndexes("secret"))]
            text = repr(told)
            assert "of tenant 2" not in text
            listed = spy.ask(m.ListTables())
            assert isinstance(listed, m.ListTablesResponse)
            assert [table.name for table in listed.tables] == ["mine"]
            refused = spy.ask(m.Query("SELECT * FROM secret", []))
            nowhere = spy.ask(m.Query("SELECT * FROM nowhere", []))
            assert isinstance(refused, m.ErrorResponse) and isinstance(nowhere, m.ErrorResponse)
            assert refused.code == nowhere.code == ErrorCode.TABLE_NOT_FOUND
            assert refused.message.replace("secret", "nowhere") == nowhere.message
            assert owner.ask(m.ReadEvents(theirs, 0, 1000)) == m.ReadEventsResponse([hidden], None)
            assert owner.ask(m.StreamInfo(theirs)) == m.StreamInfoResponse(1)
