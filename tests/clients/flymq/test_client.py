"""Both clients against a real server, and through a proxy that loses replies."""

from __future__ import annotations

import asyncio
import inspect
import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.flymq.conftest import Connect
from tests.clients.flymq.faulty_proxy import Fault, FaultyProxy
from tests.clients.flymq.running_server import RunningServer
from tests.transport.certificates import Authority

from penstock.clients.flymq import (
    AlreadyExists,
    AsyncClient,
    AuthenticationRequired,
    BadReply,
    Client,
    ConnectionFailed,
    EndOfLog,
    FlyMqError,
    LoginFailed,
    NotFound,
    OutcomeUnknown,
    PipelineError,
    ReplyError,
    RetryPolicy,
    SchemaRejected,
    ServerFailed,
    TransactionOver,
    Unauthorized,
    Unsendable,
    audit_query,
    requests,
)
from penstock.clients.flymq.errors import reply_error
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.opcodes import Op

SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}).encode()


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# -- every opcode

# In an order in which all of it can be done, against one server. `ID` stands for the last id that was answered.
ID = object()
CALLS: list[tuple[Op, str, tuple[Any, ...]]] = [
    (Op.CREATE_TOPIC, "create_topic", ("every", 2)),
    (Op.PRODUCE, "produce", ("every", b"value", b"key", 1)),
    (Op.PRODUCE_BATCH, "produce_batch", ("every", [b"a", b"b"], None, 1)),
    (Op.PRODUCE_RECORDS, "produce_records", ("every", [b"a", b"b"], None, 1)),
    (Op.FETCH_RECORDS, "fetch_records", ("every", 1, 0)),
    (Op.PRODUCE_WITH_TTL, "produce_with_ttl", ("every", b"short", 3_600_000)),
    (Op.PRODUCE_DELAYED, "produce_delayed", ("every", b"late", 3_600_000)),
    (Op.CANCEL_DELAYED, "cancel_delayed", (ID,)),
    (Op.CONSUME, "consume", ("every", 0, 1)),
    (Op.CONSUME_ZERO_COPY, "consume_zero_copy", ("every", 0, 1)),
    (Op.FETCH, "fetch", ("every", 1, 0)),
    (Op.FETCH_BINARY, "fetch_binary", ("every", 1, 0)),
    (Op.METADATA, "metadata", ("every",)),
    (Op.LIST_TOPICS, "list_topics", ()),
    (Op.SUBSCRIBE, "subscribe", ("every", "readers", 1, "earliest")),
    (Op.COMMIT, "commit", ("every", "readers", 1, 2)),
    (Op.GET_OFFSET, "get_offset", ("every", "readers", 1)),
    (Op.RESET_OFFSET, "reset_offset", ("every", "readers", 1, "earliest")),
    (Op.SEEK_TO_TIMESTAMP, "seek_to_timestamp", ("every", 1, 0)),
    (Op.GET_LAG, "get_lag", ("every", "readers", 1)),
    (Op.LIST_GROUPS, "list_groups", ()),
    (Op.DESCRIBE_GROUP, "describe_group", ("every", "readers")),
    (Op.DELETE_GROUP, "delete_group", ("every", "readers")),
    (Op.REGISTER_SCHEMA, "register_schema", ("shape", "json", SCHEMA)),
    (Op.SET_COMPATIBILITY, "set_compatibility", ("shape", "none")),
    (Op.GET_SCHEMA, "get_schema", ("shape",)),
    (Op.LIST_SCHEMAS, "list_schemas", ()),
    (Op.VALIDATE_SCHEMA, "validate_schema", ("shape", b'{"n": 1}')),
    (Op.PRODUCE_WITH_SCHEMA, "produce_with_schema", ("every", "shape", b'{"n": 1}')),
    (Op.DELETE_SCHEMA, "delete_schema", ("shape",)),
    (Op.FETCH_DLQ, "fetch_dlq", ("every",)),
    (Op.FETCH_DLQ, "fetch_dlq_page", ("every", 10, 0)),
    (Op.PURGE_DLQ, "purge_dlq", ("every",)),
    (Op.TXN_BEGIN, "begin", ()),
    (Op.TXN_PRODUCE, "produce_in_transaction", (ID, "every", b"together")),
    (Op.TXN_COMMIT, "commit_transaction", (ID,)),
    (Op.TXN_BEGIN, "begin", ()),
    (Op.TXN_ROLLBACK, "rollback_transaction", (ID,)),
    (Op.CLUSTER_STATUS, "cluster_status", ()),
    (Op.CLUSTER_METADATA, "cluster_metadata", ("every",)),
    (Op.AUTH, "authenticate", ("anybody", "anything")),
    (Op.WHOAMI, "who_am_i", ()),
    (Op.USE_SCOPE, "use_scope", ("default",)),
    (Op.USER_CREATE, "create_user", ("alice", "a long password", ["producer"])),
    (Op.USER_UPDATE, "update_user", ("alice", ["consumer"], True)),
    (Op.PASSWORD_CHANGE, "change_password", ("alice", "another password")),
    (Op.USER_GET, "get_user", ("alice",)),
    (Op.USER_LIST, "list_users", ()),
    (Op.USER_DELETE, "delete_user", ("alice",)),
    (Op.ACL_SET, "set_acl", ("every",)),
    (Op.ACL_GET, "get_acl", ("every",)),
    (Op.ACL_LIST, "list_acls", ()),
    (Op.ACL_DELETE, "delete_acl", ("every",)),
    (Op.ROLE_SET, "set_role", ("clerk", ["read"], "reads")),
    (Op.ROLE_LIST, "list_roles", ()),
    (Op.ROLE_DELETE, "delete_role", ("clerk",)),
    (Op.AUDIT_QUERY, "query_audit", ()),
    (Op.AUDIT_EXPORT, "export_audit", ()),
    (Op.DELETE_TOPIC, "delete_topic", ("every",)),
]
REFUSED: list[tuple[Op, str, tuple[Any, ...]]] = [
    (Op.CLUSTER_JOIN, "join_cluster", ("127.0.0.1:9",)),
    (Op.CLUSTER_LEAVE, "leave_cluster", ()),
    (Op.REPLAY_DLQ, "replay_dlq", ("every", "no such id")),
]


def test_every_opcode_has_a_method_in_both_clients() -> None:
    named = {op: name for op, name, _ in CALLS + REFUSED}
    assert set(named) == set(Op) - {Op.ERROR, Op.AUTH_RESPONSE}
    for name in named.values():
        assert callable(getattr(Client, name)) and callable(getattr(AsyncClient, name)), name
        shown = list(inspect.signature(getattr(requests, name)).parameters)
        for kind in (Client, AsyncClient):
            assert list(inspect.signature(getattr(kind, name)).parameters) == ["self", *shown]


def test_every_method_sends_its_opcode_and_is_answered(tmp_path: Path, connect: Connect) -> None:
    with RunningServer(tmp_path, security__audit="on") as server, FaultyProxy(server.port) as proxy:
        client = connect(proxy.port)
        last: Any = None
        for op, name, args in CALLS:
            result = getattr(client, name)(*[last if arg is ID else arg for arg in args])
            assert proxy.opcodes[-1] == op
            if name in ("produce_delayed", "begin"):
                last = result.offset if name == "produce_delayed" else result
        for op, name, args in REFUSED:
            with pytest.raises(ReplyError):
                getattr(client, name)(*args)
            assert proxy.opcodes[-1] == op
        assert proxy.connections == 1


# -- results


def test_records_come_back_as_they_were_stored(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.create_topic(topic, 2)
    stored = client.produce(topic, b"value", b"key", 1)
    assert (stored.topic, stored.partition, stored.offset) == (topic, 1, 0)
    assert (stored.key_size, stored.value_size) == (3, 5)
    assert client.produce(topic, b"", partition=1).key_size == m.NO_KEY
    batch = client.produce_batch(topic, [b"x", b"y"], [None, b"k"], [1, 0])
    assert (batch.partitions, batch.offsets) == ([1, 0], [2, 0])

    assert client.consume(topic, 0, 1) == m.Consumed(b"key", b"value")
    assert client.consume_zero_copy(topic, 1, 1) == m.Consumed(None, b"")
    records = [m.FetchedRecord(0, b"key", b"value"), m.FetchedRecord(1, None, b""), m.FetchedRecord(2, None, b"x")]
    assert client.fetch(topic, 1, 0) == m.Fetched(records, 3)
    assert client.fetch_binary(topic, 1, 0).records == records
    assert client.fetch(topic, 1, 1, 1) == m.Fetched(records[1:2], 2)
    assert client.fetch(topic, 1, 0, filter="VAL") == m.Fetched(records[:1], 3, code_order=True)
    assert [(p.partition, p.newest_offset) for p in client.metadata(topic).partitions] == [(0, 1), (1, 3)]
    assert topic in client.list_topics()
    assert [p.leader_id for p in client.cluster_metadata(topic).topics[0].partitions] == ["penstock"] * 2
    client.delete_topic(topic)
    assert topic not in client.list_topics()


def test_groups_stand_where_they_were_put(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.produce_many(topic, [b"%d" % number for number in range(10)])
    assert client.subscribe(topic, "g", 0, "earliest") == 0
    assert client.subscribe(topic, "g") == 10
    client.commit(topic, "g", 0, 4)
    assert client.subscribe(topic, "g", 0, "commit") == client.get_offset(topic, "g") == 4
    assert client.get_lag(topic, "g") == m.Lag(4, 4, 10, 6)
    described = client.describe_group(topic, "g")
    assert described == m.GroupInfo(topic, "g", 1, [m.PartitionOffset(0, 4)])
    assert described in client.list_groups()
    client.reset_offset(topic, "g", 0, 7)
    assert client.get_offset(topic, "g") == 7
    client.reset_offset(topic, "g", 0, "latest")
    assert client.get_offset(topic, "g") == 10
    assert client.seek_to_timestamp(topic, 0, 0, "g") == 0
    assert client.get_offset(topic, "g") == 0
    client.delete_group(topic, "g")
    with pytest.raises(NotFound, match="consumer group not found"):
        client.describe_group(topic, "g")


def test_schemas_are_kept_and_enforced(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    assert client.register_schema(topic, "json", SCHEMA) == m.SchemaSummary(topic, "json", 1)
    found = client.get_schema(topic)
    assert (found.definition, found.version, found.schema_id) == (SCHEMA, 1, f"{topic}-v1")
    assert m.SchemaSummary(topic, "json", 1) in client.list_schemas()
    assert client.list_schemas(topic) == [m.SchemaSummary(topic, "json", 1)]
    assert client.validate_schema(topic, b'{"n": 1}') == m.SchemaVerdict(True, [])
    verdict = client.validate_schema(topic, b"{}")
    assert not verdict.valid and "n" in verdict.errors[0]
    assert client.produce_with_schema(topic, topic, b'{"n": 1}').offset == 0
    with pytest.raises(SchemaRejected, match="schema validation failed"):
        client.produce_with_schema(topic, topic, b'{"n": "one"}')
    with pytest.raises(SchemaRejected, match="failed to register schema"):
        client.register_schema(topic, "json", b"[")
    with pytest.raises(ReplyError, match="unsupported schema type"):
        client.register_schema(topic, "xml", b"<a/>")
    client.delete_schema(topic)
    with pytest.raises(NotFound):
        client.get_schema(topic)


def test_delayed_and_short_lived_records(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    later = client.produce_delayed(topic, b"later", 3_600_000, b"key")
    soon = client.produce_delayed(topic, b"soon", 20)
    client.cancel_delayed(later.offset)
    with pytest.raises(NotFound, match="message not found"):
        client.cancel_delayed(later.offset)
    assert soon.offset != later.offset
    end = time.monotonic() + 20
    while not (records := client.fetch(topic, 0, 0).records) and time.monotonic() < end:
        time.sleep(0.02)
    assert [record.value for record in records] == [b"soon"]
    assert client.produce_with_ttl(topic, b"kept", 3_600_000, b"key").offset == 1
    assert client.consume(topic, 1) == m.Consumed(b"key", b"kept")


def test_a_transaction_is_stored_at_the_end_of_its_block(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.create_topic(topic)
    with client.transaction() as transaction:
        transaction.produce(topic, b"one", b"key")
        transaction.produce(topic, b"two")
        assert client.fetch(topic, 0, 0).records == []
    assert [record.value for record in client.fetch(topic, 0, 0).records] == [b"one", b"two"]
    client.commit_transaction(transaction.id)  # counts once
    assert client.fetch(topic, 0, 0).next_offset == 2


def test_a_commit_whose_reply_is_lost_is_sent_again_and_counts_once(
    proxy: FaultyProxy, connect: Connect, topic: str
) -> None:
    client = connect(proxy.port)
    with client.transaction() as transaction:
        transaction.produce(topic, b"one")
        proxy.faults.append(Fault.DROP)
    assert proxy.opcodes[-2:] == [Op.TXN_COMMIT] * 2
    assert client.fetch(topic, 0, 0).next_offset == 1


def test_a_transaction_is_rolled_back_on_an_exception(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.create_topic(topic)
    with pytest.raises(ZeroDivisionError), client.transaction() as transaction:
        transaction.produce(topic, b"one")
        raise ZeroDivisionError
    assert client.fetch(topic, 0, 0).records == []
    with pytest.raises(TransactionOver):
        client.produce_in_transaction(transaction.id, topic, b"late")


def test_a_transaction_ends_with_its_connection(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    client.create_topic(topic)
    with pytest.raises(OutcomeUnknown), client.transaction() as transaction:
        proxy.faults.extend([Fault.NONE, Fault.DROP])
        transaction.produce(topic, b"one")
        transaction.produce(topic, b"two")
    assert client.fetch(topic, 0, 0).records == []


def test_the_cluster_is_one_node(running: RunningServer, connect: Connect) -> None:
    client = connect(running.port)
    status = client.cluster_status()
    assert (status.cluster_id, [node.is_leader for node in status.nodes]) == ("standalone", [True])
    with pytest.raises(ReplyError, match="standalone"):
        client.join_cluster("elsewhere:9092")


# -- users


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with security, and an administrator."""
    settings = {"security__mode": "on", "security__lockout_failures": "0"}
    with RunningServer(tmp_path_factory.mktemp("guarded"), **settings) as server:
        server.add_user("root", "root password", "admin")
        yield server


def as_root(**options: Any) -> dict[str, Any]:
    return {"username": "root", "password": "root password", **options}


def test_users_roles_and_lists(guarded: RunningServer, connect: Connect, topic: str, kind: str) -> None:
    client = connect(guarded.port, **as_root())
    me = client.who_am_i()
    assert (me.authenticated, me.username, me.roles) == (True, "root", ["admin"])
    name, role = f"bob-{kind}", f"clerk-{kind}"
    made = client.create_user(name, "his password", ["consumer"])
    assert (made.username, made.roles, made.enabled) == (name, ["consumer"], True)
    with pytest.raises(AlreadyExists):
        client.create_user(name, "his password")
    client.set_role(role, ["read", "write"], "both")
    assert m.RoleInfo(role, ["read", "write"], "both") in client.list_roles()
    client.update_user(name, [role], enabled=True)
    assert client.get_user(name).roles == [role]
    assert name in [user.username for user in client.list_users()]

    client.create_topic(topic)
    client.set_acl(topic, users=["root"], restrict=True)
    acl = client.get_acl(topic)
    assert (acl.exists, acl.public, acl.users, acl.restrict) == (True, False, ["root"], True)
    assert topic in [entry.topic for entry in client.list_acls().entries]

    his = connect(guarded.port, username=name, password="his password")
    with pytest.raises(Unauthorized):
        his.produce(topic, b"no")
    client.delete_acl(topic)
    his.produce(topic, b"yes")
    with pytest.raises(Unauthorized):
        his.list_users()
    with pytest.raises(Unauthorized, match="invalid current password"):
        his.change_password(name, "new password", "wrong")
    his.change_password(name, "new password", "his password")
    client.update_user(name, [role], enabled=False)
    with pytest.raises(Unauthorized, match="disabled"):
        his.produce(topic, b"no")
    client.delete_user(name)
    with pytest.raises(NotFound):
        client.get_user(name)


def test_without_a_login_not_much_is_allowed(guarded: RunningServer, connect: Connect) -> None:
    client = connect(guarded.port)
    with pytest.raises(AuthenticationRequired):
        client.create_topic("secret")
    assert not client.who_am_i().authenticated
    with pytest.raises(LoginFailed, match="invalid username or password"):
        client.authenticate("root", "guess")
    with pytest.raises(AuthenticationRequired):
        client.create_topic("secret")
    client.authenticate("root", "root password")
    client.create_topic("secret")


def test_what_happened_is_in_the_audit_log(guarded: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(guarded.port, **as_root())
    client.create_topic(topic, 3)
    page = client.query_audit(audit_query(resource=topic))
    assert [event.resource for event in page.events] == [topic]
    assert page.events[0].user.endswith("root")
    assert topic.encode() in client.export_audit(audit_query(resource=topic), "csv")
    assert json.loads(client.export_audit(audit_query(resource=topic)))


def test_a_login_is_repeated_after_a_reconnect(guarded: RunningServer, connect: Connect, topic: str) -> None:
    with FaultyProxy(guarded.port) as proxy:
        client = connect(proxy.port)
        client.authenticate("root", "root password")
        client.create_topic(topic)
        proxy.drop_connections()
        client.notice()
        assert client.who_am_i().username == "root"
        assert proxy.opcodes == [Op.AUTH, Op.CREATE_TOPIC, Op.AUTH, Op.WHOAMI]


def test_a_login_that_is_refused_is_not_repeated(guarded: RunningServer, connect: Connect) -> None:
    with FaultyProxy(guarded.port) as proxy:
        client = connect(proxy.port, username="root", password="guess")
        with pytest.raises(LoginFailed):
            client.list_topics()
        assert proxy.opcodes == [Op.AUTH]
        assert client.slept == []


def test_a_failed_login_is_shared_by_all_who_wait_for_it(guarded: RunningServer) -> None:
    """Each of them trying again would lock the host out."""

    async def scene(port: int) -> list[Any]:
        async with AsyncClient(port=port, username="root", password="guess") as client:
            return list(await asyncio.gather(*[client.list_topics() for _ in range(20)], return_exceptions=True))

    with FaultyProxy(guarded.port) as proxy:
        outcomes = asyncio.run(scene(proxy.port))
        assert {type(outcome) for outcome in outcomes} == {LoginFailed}
        assert proxy.opcodes == [Op.AUTH]


def test_a_password_is_in_no_text() -> None:
    client = Client(username="root", password="root password")
    assert "root password" not in repr(client) + repr(client._binding) + repr(client._connect_options)
    assert "root password" not in repr(requests.authenticate("root", "root password"))


# -- refusals


def test_a_refusal_leaves_the_connection_usable(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    with pytest.raises(NotFound, match=r"^topic not found$"):
        client.consume(topic, 0)
    client.produce(topic, b"one")
    with pytest.raises(EndOfLog):
        client.consume(topic, 1)
    with pytest.raises(NotFound, match=r"^partition 7 not found$"):
        client.fetch(topic, 7, 0)
    with pytest.raises(NotFound, match=r"^partition 7 out of range$"):
        client.consume(topic, 0, 7)
    with pytest.raises(NotFound):
        client.get_user("nobody")
    with pytest.raises(ReplyError, match="unknown subscribe mode") as caught:
        client.subscribe(topic, "g", 0, "sometimes")
    assert type(caught.value) is ReplyError
    assert proxy.connections == 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("EOF", EndOfLog),
        ("topic not found: x", NotFound),
        ('user "x" not found', NotFound),
        ('user "x" already exists', AlreadyExists),
        ("user account is disabled", Unauthorized),
        ("transaction not found: x", TransactionOver),
        ("transaction is not active: timed out", TransactionOver),
        ("server shutting down", ServerFailed),
        ("no space left", ServerFailed),
        ("not leader: leader_addr=h:1", ServerFailed),
        ("ttl 5 ms is out of range", ReplyError),
        ("something else", ReplyError),
        ("", ReplyError),
    ],
)
def test_refusals_are_told_apart_by_their_texts(text: str, kind: type[ReplyError]) -> None:
    error = reply_error(text)
    assert type(error) is kind
    assert (str(error), error.message) == (text, text)


def test_what_cannot_be_carried_is_refused_before_it_is_sent(proxy: FaultyProxy, connect: Connect) -> None:
    client = connect(proxy.port)
    cases: list[Callable[[], object]] = [
        lambda: client.produce("x" * 70_000, b""),
        lambda: client.produce("t", b"", partition=2**31),
        lambda: client.consume("t", -1),
        lambda: client.produce("t", bytes(34_000_000)),
        lambda: client.produce("\udc80", b""),
        lambda: client.produce_many("x" * 70_000, [b""]),
        lambda: client.produce_many("t", [b""], partition=2**31),
        lambda: client.produce_many("t", [bytes(34_000_000)]),
        lambda: client.subscribe("t", "g", 0, "m" * 300),
    ]
    for call in cases:
        with pytest.raises(Unsendable):
            call()
    with pytest.raises(ValueError, match="as many keys"):
        client.produce_batch("t", [b"", b""], [None])
    assert proxy.requests == []


@pytest.mark.parametrize(
    "options", [{"username": "root"}, {"password": "x"}, {"timeout": 0}], ids=["no password", "no name", "no time"]
)
def test_a_client_is_not_made_of_half_a_login_or_no_time(connect: Connect, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"go together|timeout"):
        connect(9, **options)


# -- connections that break


def test_it_connects_once_and_when_it_must(proxy: FaultyProxy, connect: Connect) -> None:
    client = connect(proxy.port)
    assert proxy.connections == 0
    client.connect()
    assert client.connections == 1
    client.list_topics()
    assert proxy.connections == client.connections == 1
    client.close()
    client.list_topics()
    assert proxy.connections == client.connections == 2


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.HALF])
def test_what_does_no_harm_is_sent_again(proxy: FaultyProxy, connect: Connect, topic: str, fault: Fault) -> None:
    client = connect(proxy.port)
    client.produce(topic, b"one")
    proxy.faults.extend([fault, fault])
    assert client.fetch(topic, 0, 0).next_offset == 1
    assert proxy.opcodes == [Op.PRODUCE, Op.FETCH, Op.FETCH, Op.FETCH]
    assert client.slept == [0.5, 1.0]  # doubled, and half of it by the test's dice


def test_it_is_not_sent_for_ever(proxy: FaultyProxy, connect: Connect) -> None:
    client = connect(proxy.port)
    proxy.faults.extend([Fault.DROP] * 4)
    with pytest.raises(ConnectionFailed, match="lost 3 times"):
        client.list_topics()
    assert len(proxy.requests) == 3


def test_a_produce_whose_reply_is_lost_is_not_repeated(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    client.create_topic(topic)
    proxy.faults.append(Fault.DROP)
    with pytest.raises(OutcomeUnknown):
        client.produce(topic, b"one")
    assert [record.value for record in client.fetch(topic, 0, 0).records] == [b"one"]


def test_unless_that_is_wanted(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    client.create_topic(topic)
    proxy.faults.append(Fault.DROP)
    assert client.produce(topic, b"one", retry=True).offset == 1
    assert [record.value for record in client.fetch(topic, 0, 0).records] == [b"one", b"one"]


def test_a_connection_that_the_server_closed_is_noticed_before_a_produce(
    proxy: FaultyProxy, connect: Connect, topic: str
) -> None:
    client = connect(proxy.port)
    client.produce(topic, b"one")
    proxy.drop_connections()
    client.notice()
    assert client.produce(topic, b"two").offset == 1
    assert proxy.connections == 2


def test_a_reply_that_does_not_come_ends_the_connection(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    """A late one would be taken for the reply to another request."""
    client = connect(proxy.port, timeout=1.5)
    client.produce(topic, b"one")
    proxy.faults.append(Fault.SILENCE)
    with pytest.raises(OutcomeUnknown, match=r"no reply in 1\.5 seconds"):
        client.produce(topic, b"two")
    assert client.fetch(topic, 0, 0).next_offset == 2
    assert proxy.connections == 2


@pytest.mark.parametrize("fault", [Fault.JUNK, Fault.WRONG, Fault.BAD_MAGIC])
def test_a_reply_that_is_none_ends_the_connection(
    proxy: FaultyProxy, connect: Connect, topic: str, fault: Fault
) -> None:
    client = connect(proxy.port)
    proxy.faults.append(fault)
    with pytest.raises(BadReply):
        client.list_topics()
    assert client.slept == []  # nor is it sent again
    client.produce(topic, b"one")
    assert proxy.connections == 2


@pytest.mark.parametrize("fault", [Fault.TWICE, Fault.AND_MORE])
def test_a_reply_too_many_is_not_taken_for_the_next(
    proxy: FaultyProxy, connect: Connect, topic: str, fault: Fault
) -> None:
    client = connect(proxy.port)
    client.produce(topic, b"one")
    proxy.faults.append(fault)
    assert client.fetch(topic, 0, 0).next_offset == 1
    client.notice()
    assert client.produce(topic, b"two").offset == 1
    assert proxy.connections == 2


def test_replies_may_come_byte_by_byte(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    proxy.faults.extend([Fault.BYTEWISE] * 2)
    assert client.produce(topic, b"one").offset == 0
    assert client.fetch(topic, 0, 0).next_offset == 1


def test_connecting_is_tried_again_with_growing_pauses(connect: Connect, closed_port: int) -> None:
    client = connect(closed_port, retry=RetryPolicy(attempts=5, base=1.0, cap=3.0, random=lambda: 1.0))
    with pytest.raises(ConnectionFailed, match="No connection to"):
        client.list_topics()
    assert client.slept == [1.0, 2.0, 3.0, 3.0]


def test_a_server_that_comes_up_meanwhile_is_found(running: RunningServer, connect: Connect) -> None:
    proxy = FaultyProxy(running.port)
    client = connect(proxy.port)
    opened: list[FaultyProxy] = []

    def open_once() -> None:
        if not opened:
            opened.append(proxy.__enter__())

    client.on_sleep = open_once
    try:
        client.list_topics()
        assert client.slept == [0.5]
    finally:
        client.close()
        proxy.__exit__(None, None, None)


# -- TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[RunningServer]:
    issued = authority.issue("server")
    settings = {"tls__cert": issued.cert, "tls__key": issued.key, "tls__required": "true"}
    with RunningServer(tmp_path_factory.mktemp("secure"), **settings) as server:
        yield server


@pytest.mark.parametrize("by", ["path", "context"])
def test_tls(secure: RunningServer, authority: Authority, connect: Connect, topic: str, by: str) -> None:
    tls = authority.path if by == "path" else ssl.create_default_context(cafile=authority.path)
    client = connect(secure.port, tls=tls)
    values = [bytes([number % 256]) * 10_000 for number in range(400)]
    assert [stored.offset for stored in client.produce_many(topic, values)] == list(range(400))
    found: list[bytes] = []
    while len(found) < 400:
        found += [record.value for record in client.fetch(topic, 0, len(found), 1000).records]
    assert found == values


def test_a_server_that_nobody_vouches_for_is_not_spoken_to(
    secure: RunningServer, tmp_path: Path, connect: Connect
) -> None:
    client = connect(secure.port, tls=Authority(tmp_path, "another").path)
    with pytest.raises(ConnectionFailed, match=r"(?i)certificate"):
        client.list_topics()
    assert client.slept == []  # it will not get better


# -- many at once


def test_a_pipeline_has_an_outcome_for_each_request(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    stored, missing, fetched = client.pipeline(
        [requests.produce(topic, b"one"), requests.consume(topic, 9), requests.fetch(topic, 0, 0, filter="o")]
    )
    assert stored.offset == 0
    assert isinstance(missing, EndOfLog)
    assert [record.value for record in fetched.records] == [b"one"]
    assert client.pipeline([]) == []


def test_a_slow_stream_of_replies_is_no_silence(proxy: FaultyProxy, connect: Connect) -> None:
    """The timeout is for the next reply, and not for the last of many."""
    client = connect(proxy.port, timeout=2.0)
    proxy.delay = 0.5
    assert len(client.pipeline([requests.list_topics()] * 6)) == 6
    assert proxy.connections == 1


def test_what_a_pipeline_was_answered_is_not_sent_again(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    proxy.faults.extend([Fault.NONE, Fault.DROP])
    specs = [requests.produce(topic, b"one"), requests.list_topics(), requests.fetch(topic, 0, 0)]
    stored, _, fetched = client.pipeline(specs)
    assert (stored.offset, fetched.next_offset) == (0, 1)
    assert proxy.opcodes.count(Op.PRODUCE) == 1
    assert proxy.opcodes[-2:] == [Op.LIST_TOPICS, Op.FETCH]


def test_a_pipeline_with_a_produce_in_doubt_stops(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    proxy.faults.extend([Fault.NONE, Fault.DROP])
    outcomes = client.pipeline([requests.produce(topic, b"%d" % number) for number in range(3)])
    assert outcomes[0].offset == 0
    assert [type(outcome) for outcome in outcomes[1:]] == [OutcomeUnknown] * 2


def test_large_requests_and_large_replies_do_not_block_each_other(
    running: RunningServer, connect: Connect, topic: str
) -> None:
    """The server reads no more while its replies are not taken, and the client has more to say than buffers hold."""
    client = connect(running.port)
    client.produce_batch(topic, [bytes(1 << 20)] * 8)
    big = requests.produce_batch(f"{topic}-more", [bytes(1 << 20)] * 8)
    specs = [requests.fetch(topic, 0, 0), big] * 6
    outcomes = client.pipeline(specs)
    assert all(not isinstance(outcome, FlyMqError) for outcome in outcomes)
    assert [len(outcome.records) > 5 for outcome in outcomes[::2]] == [True] * 6


@pytest.mark.parametrize("window", [2, 7, 1024])
def test_produce_many_keeps_order_and_says_where(
    running: RunningServer, connect: Connect, topic: str, window: int
) -> None:
    client = connect(running.port)
    client.create_topic(topic, 2)
    values = [b"%d" % number for number in range(100)]
    keys = [None if number % 3 else b"k%d" % number for number in range(100)]
    stored = client.produce_many(topic, iter(values), iter(keys), 1, window=window)
    assert [(one.topic, one.partition, one.offset) for one in stored] == [(topic, 1, number) for number in range(100)]
    assert [one.key_size for one in stored] == [-1 if key is None else len(key) for key in keys]
    records = client.fetch(topic, 1, 0, 1000).records
    assert [(record.key, record.value) for record in records] == list(zip(keys, values, strict=True))
    assert client.produce_many(topic, []) == []


def test_produce_many_stops_at_the_first_refusal(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    client.create_topic(topic)
    with pytest.raises(PipelineError, match="partition 5") as caught:
        client.produce_many(topic, (b"%d" % number for number in range(1000)), partition=5, window=4)
    assert {type(result) for result in caught.value.results} == {NotFound}
    assert len(caught.value.results) == proxy.opcodes.count(Op.PRODUCE) <= 6
    client.produce(topic, b"one")
    assert proxy.connections == 1


def test_produce_many_says_what_it_does_not_know(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    client.create_topic(topic)
    proxy.faults.extend([Fault.NONE] * 5 + [Fault.DROP])
    with pytest.raises(PipelineError) as caught:
        client.produce_many(topic, [b"%d" % number for number in range(100)], window=8)
    results = caught.value.results
    assert [result.offset for result in results[:5]] == [0, 1, 2, 3, 4]
    assert {type(result) for result in results[5:]} == {OutcomeUnknown}
    stored = len(client.fetch(topic, 0, 0, 1000).records)
    assert 5 <= stored <= len(results) < 100


def test_produce_many_goes_on_if_nothing_is_lost_with_a_connection(
    proxy: FaultyProxy, connect: Connect, topic: str
) -> None:
    """It breaks when all that was sent is answered, before everything is sent."""
    client = connect(proxy.port)
    proxy.hold = 2
    proxy.faults.extend([Fault.NONE, Fault.AND_MORE])
    stored = client.produce_many(topic, numbers(6), window=2)
    assert [one.offset for one in stored] == list(range(6))
    assert proxy.connections == 2


def test_values_that_end_by_an_exception_spoil_no_later_reply(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)

    def values() -> Iterator[bytes]:
        yield from [b"0", b"1", b"2"]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.produce_many(topic, values(), window=2)
    with pytest.raises(ValueError, match="as many keys"):
        client.produce_many(topic, [b"3", b"4"], [None])
    for window in (1, 5000):
        with pytest.raises(ValueError, match="window"):
            client.produce_many(topic, [b"5"], window=window)
    assert client.list_topics()
    assert client.fetch(topic, 0, 0).next_offset >= 2


# -- asyncio


def test_tasks_share_a_connection_and_keep_their_order(proxy: FaultyProxy, topic: str) -> None:
    async def scene() -> list[int]:
        async with AsyncClient(port=proxy.port) as client:
            calls = [client.produce(topic, b"%d" % number) for number in range(500)]
            stored = await asyncio.gather(*calls)
            records = (await client.fetch(topic, 0, 0, 1000)).records
            assert [record.value for record in records] == [b"%d" % number for number in range(500)]
            return [one.offset for one in stored]

    assert asyncio.run(scene()) == list(range(500))
    assert proxy.connections == 1


def test_a_caller_who_leaves_takes_no_reply_along(proxy: FaultyProxy, topic: str) -> None:
    async def scene() -> None:
        async with AsyncClient(port=proxy.port) as client:
            await client.create_topic(topic)
            first = asyncio.create_task(client.produce(topic, b"first"))
            second = asyncio.create_task(client.produce(topic, b"second"))
            await asyncio.sleep(0)  # both are sent now, and not answered
            first.cancel()
            assert (await second).offset == 1
            assert (await client.fetch(topic, 0, 0)).next_offset == 2

    asyncio.run(scene())
    assert proxy.connections == 1


def test_a_failed_connect_is_shared_by_all_who_wait_for_it(closed_port: int) -> None:
    pauses = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def scene() -> list[Any]:
        retry = RetryPolicy(attempts=3, base=1.0, random=lambda: 1.0)
        async with AsyncClient(port=closed_port, retry=retry, sleep=sleep) as client:
            return list(await asyncio.gather(*[client.list_topics() for _ in range(50)], return_exceptions=True))

    assert {type(outcome) for outcome in asyncio.run(scene())} == {ConnectionFailed}
    assert len(pauses) == 2
