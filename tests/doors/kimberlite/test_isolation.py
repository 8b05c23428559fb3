"""No tenant can see, change or infer anything of another.

For every kind of request, and with every kind of proof, what somebody of one tenant is told is the same, byte for byte,
whether the other tenant has something, somebody else has it, or nobody. That these tests would find a hole is tested
too: with bugs planted, they fail.
"""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from tests.broker.security.test_tokens import SHARED, signed
from tests.doors.kimberlite.asking import ABOUT, Target
from tests.doors.kimberlite.peer import Peer
from tests.doors.kimberlite.sql_broker_fixture import SqlBrokerFixture
from tests.doors.kimberlite.test_session import key

from penstock.broker.errors import TopicExists
from penstock.broker.names import DEFAULT_SCOPE, Scope, is_internal
from penstock.broker.queries.queries import Queries
from penstock.broker.queries.query_capability import QueryCapability
from penstock.broker.security import audit, keys
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, Access, AccessPolicy
from penstock.broker.security.audit import Audit
from penstock.broker.security.audit_event import AuditPolicy
from penstock.broker.security.keys import Keys
from penstock.broker.security.lockout import LockoutPolicy
from penstock.broker.security.token import TokenPolicy
from penstock.broker.tenancy.tenants import Tenants
from penstock.broker.topics import id_lookup, topic_rules
from penstock.doors.handlers import reads
from penstock.doors.kimberlite.handlers import server
from penstock.doors.kimberlite.handlers import tenants as tenant_operations
from penstock.doors.kimberlite.handlers.table import HANDLERS
from penstock.doors.kimberlite.request_context import KimberliteContext, KimberliteSettings
from penstock.doors.kimberlite.subscriptions import Subscriptions
from penstock.doors.reply import Reply
from penstock.log.engine import partition_id
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.dialects import NAMED
from penstock.wire.kimberlite.codec.generations import GENERATIONS, REQUESTS
from penstock.wire.kimberlite.messages import ErrorCode
from penstock.workers.sql import executor

OWN, OTHER, THIRD = 1, 2, 3
SECRET = b'{"who": "a secret"}'
SETTINGS = KimberliteSettings(assume="5b")  # no request is put off as ambiguous
NOT_YOURS = m.ErrorResponse(ErrorCode.AUTHENTICATION_FAILED, "the token is not for this tenant")
POSITION = 100  # of the log, before anybody asks

CREDENTIALS: Final = ("key of an administrator", "token of an administrator", "token of a user", "token of an auditor")


SQL: Final = (m.Query, m.QueryAt, m.ListTables, m.DescribeTable, m.ListIndexes)


CREATING: Final = (m.Query, m.CreateStream)  # what is not there at first is there then


class Heard(NamedTuple):
    """An observation by a client: the bytes it was sent, and how far the log has advanced."""

    data: bytes
    replies: list[m.Message]
    moved: int


class Scene:
    """Tenant 1 with a stream, and `owner` with something of everything; if `gone`, it is deleted again. The numbers of
    streams and keys, and the position of the log, are the same whoever the owner is."""

    def __init__(self, owner: int, *, gone: bool = False, sql: bool = True) -> None:
        self.fixture = SqlBrokerFixture(
            access=AccessPolicy(True, [ADMINISTRATION]),
            audit=AuditPolicy(enabled=True),
            tokens=TokenPolicy((SHARED,)),
            lockout=LockoutPolicy(0),
        )
        self.steps: list[str] | None = None
        roles = (None, "Admin", "User", "Auditor")
        self.tokens = {
            name: key(self.fixture, OWN) if role is None else signed(tenant_id=OWN, roles=[role])
            for name, role in zip(CREDENTIALS, roles, strict=True)
        }
        self.key = key(self.fixture, owner)
        first = self.peer(CREDENTIALS[0])
        self.own = first.create("mine")
        first.append(self.own, b'{"who": "me"}')
        self.stream, subscription = self._furnish(owner, sql=sql)
        if gone:
            self.fixture.broker.tenants.delete(ADMINISTRATOR, str(owner))
        self._fill_up()
        self.target = Target(OTHER, self.stream, "secret", self.key, "2", subscription, position=20)

    def _furnish(self, owner: int, *, sql: bool) -> tuple[int, int]:
        self.owner = Peer(self.fixture, tenant=owner, token=self.key, settings=SETTINGS)
        stream = self.owner.create("secret")
        self.owner.append(stream, SECRET, SECRET)
        subscribed = self.owner.ask(m.Subscribe(stream, 0, 1, "group"))
        assert isinstance(subscribed, m.SubscribeResponse)
        if sql:  # which takes its time
            self._query("CREATE TABLE ledger (who VARCHAR PRIMARY KEY)")
            self._query("SELECT who FROM secret")
        else:
            self.owner.create("ledger")
        return stream, subscribed.subscription_id

    def _query(self, sql: str) -> None:
        reply = self.owner.ask(m.Query(sql, [], "to see it"))
        assert isinstance(reply, m.QueryResponse), reply

    def _fill_up(self) -> None:
        broker = self.fixture.broker
        broker.topics.create(ADMINISTRATOR, DEFAULT_SCOPE, "filling", 1)
        self.fixture.commit()
        broker.produce.append(ADMINISTRATOR, DEFAULT_SCOPE, "filling", 0, [b""] * (POSITION - broker.position))
        self.fixture.commit()
        assert broker.position == POSITION

    def peer(self, credential: str, dialect: str = "5b") -> Peer:
        generation = dialect.partition("/")[0]
        settings = KimberliteSettings(assume="auto" if generation in ("v2", "v3", "v4") else generation)
        return Peer(self.fixture, dialect, tenant=OWN, token=self.tokens[credential], settings=settings)

    def ask(self, credential: str, request: m.Message, tenant: int, dialect: str = "5b") -> Heard:
        """On a connection of its own."""
        peer = self.peer(credential, dialect)
        frame, before = peer.frame(request, tenant), self.fixture.broker.position
        with self.watched():
            peer.feed(frame)
            self.fixture.commit()
        data = peer.raw()
        peer.wire.feed(data)
        replies = []
        while (reply := peer.wire.next()) is not None:
            replies.append(reply.payload)
        if not peer.closed:
            peer.session.lost()
            self.fixture.commit()
        return Heard(data, replies, self.fixture.broker.position - before)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Writes down which functions are called meanwhile, if somebody wants to know."""
        if self.steps is None:
            yield
            return
        steps = self.steps

        def step(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and "/penstock/" in frame.f_code.co_filename:
                steps.append(frame.f_code.co_qualname)

        gc.disable()  # what others left behind is not finalized in the middle
        sys.setprofile(step)
        try:
            yield
        finally:
            sys.setprofile(None)
            gc.enable()

    def others(self) -> object:
        """Everything of the other tenant that a request could have changed."""
        state = self.fixture.broker.state_log.state
        topics = [topic for topic in state.topics_by_id.values() if topic.scope.tenant == str(OTHER)]
        ends = [self.fixture.engine.next_offset(partition_id(topic.id, 0)) for topic in topics]
        keys = [one for one in state.keys.values() if one.tenant == str(OTHER)]
        groups = {scope: repr(found) for scope, found in state.groups.items() if scope.tenant == str(OTHER)}
        return topics, ends, keys, groups, str(OTHER) in state.registered

    def close(self) -> None:
        self.fixture.close()


@pytest.fixture(autouse=True)
def no_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random numbers are the same in all brokers: keys differ by their numbers."""
    monkeypatch.setattr(keys, "secrets", SimpleNamespace(token_bytes=bytes))


@pytest.fixture(autouse=True)
def one_duckdb_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more, either DuckDB's own threads or this one read the records, as it happens: `watched` sees this one."""
    monkeypatch.setattr(executor, "MAX_DUCKDB_THREADS", 1)


@contextmanager
def scenes(kind: type[m.Message]) -> Iterator[list[Scene]]:
    """The requested resource is the other tenant's, a third one's, or does not exist."""
    sql = kind in SQL
    opened = [Scene(OTHER, sql=sql), Scene(THIRD, sql=sql), Scene(THIRD, gone=True, sql=sql)]
    try:
        yield opened
    finally:
        for scene in opened:
            scene.close()


def check(kind: type[m.Message], *credentials: str) -> None:
    """Check that a kind of request reveals and changes nothing. Raises AssertionError."""
    for some in [[one] for one in credentials] if kind in CREATING else [credentials]:
        with scenes(kind) as opened:
            for credential, tenant in itertools.product(some, (OTHER, OWN)):
                _compare(opened, kind, credential, tenant)


def _compare(opened: list[Scene], kind: type[m.Message], credential: str, tenant: int, dialect: str = "5b") -> None:
    theirs = opened[0]
    own, before = theirs.tokens[credential], theirs.others()
    for request in ABOUT[kind](theirs.target._replace(token=own)):
        told, *others = [scene.ask(credential, request, tenant, dialect) for scene in opened]
        assert told.replies and others == [told, told], request
        assert b"a secret" not in told.data and b"ledger" not in told.data
        assert theirs.others() == before, request
        if tenant == OTHER and (not isinstance(request, m.Handshake) or request.auth_token == own):
            assert told.replies == [NOT_YOURS] and told.moved == 0


@pytest.mark.parametrize("kind", ABOUT, ids=lambda kind: kind.__name__)
def test_nothing_of_another_tenant_is_told_or_changed(kind: type[m.Message]) -> None:
    check(kind, *(CREDENTIALS[:3:2] if kind in SQL else CREDENTIALS))


@pytest.mark.parametrize("dialect", [name for name in NAMED if name != "5b"])
def test_nor_is_it_in_older_dialects(dialect: str) -> None:
    known = [record.make for record in GENERATIONS[dialect.partition("/")[0]].requests().variants]
    assert m.ReadEvents in known
    with scenes(m.ReadEvents) as opened:
        for kind in known:
            if kind not in (m.Handshake, *SQL):  # says its version; say the same in all
                for tenant in (OTHER, OWN):
                    _compare(opened, kind, CREDENTIALS[1], tenant, dialect)


def test_every_kind_of_request_is_tried() -> None:
    assert set(ABOUT) == {shape.make for shape in REQUESTS}


@pytest.mark.parametrize(
    "kind", [kind for kind in ABOUT if kind not in (*CREATING, m.TenantList)], ids=lambda kind: kind.__name__
)
def test_what_is_there_takes_no_longer_to_refuse(kind: type[m.Message]) -> None:
    """No clock is good enough for a test: but the same functions are called, in the same order. To list tenants is to
    look at all of them."""
    with scenes(kind) as opened:
        for request in ABOUT[kind](opened[0].target):
            for scene in opened:
                scene.ask(CREDENTIALS[0], request, OWN)  # what is remembered from now on differs no more
                scene.steps = []
                scene.ask(CREDENTIALS[0], request, OWN)
            assert len(opened[0].steps or ()) > 20
            assert [scene.steps for scene in opened[1:]] == [opened[0].steps] * 2, request
            for scene in opened:
                scene.steps = None


def test_scenes_differ_only_in_the_other_tenant() -> None:
    """Else the comparisons would prove nothing."""
    with scenes(m.Query) as (theirs, elsewhere, nowhere):
        assert (theirs.own, theirs.target) == (
            nowhere.own,
            nowhere.target._replace(subscription=theirs.target.subscription),
        )
        assert theirs.target.key == elsewhere.target.key == nowhere.target.key
        assert theirs.others() != elsewhere.others() == nowhere.others()
        for scene in (theirs, elsewhere):
            assert scene.owner.read(scene.stream).events == [SECRET, SECRET]
            rows = scene.owner.ask(m.Query("SELECT who FROM secret", []))
            assert rows == m.QueryResponse(["who"], [["a secret"], ["a secret"]])
        assert nowhere.owner.greet(nowhere.key) == m.ErrorResponse(
            ErrorCode.AUTHENTICATION_FAILED, "invalid or expired token"
        )


def test_the_audit_log_of_one_tenant_has_nothing_of_the_other() -> None:
    scene = Scene(OTHER)
    found = scene.peer(CREDENTIALS[0]).ask(m.AuditQuery(limit=1000))
    theirs = scene.owner.ask(m.AuditQuery(limit=1000))
    assert isinstance(found, m.AuditQueryResponse) and isinstance(theirs, m.AuditQueryResponse)
    assert len(found.events) > 2 and "secret" not in repr(found)
    assert len(theirs.events) > 4 and "secret" in repr(theirs) and "mine" not in repr(theirs)
    scene.close()


def test_streams_and_tables_of_the_same_name_are_different_ones() -> None:
    scene = Scene(OTHER)
    spy, owner = scene.peer(CREDENTIALS[1]), scene.owner
    assert spy.create("secret") not in (scene.own, scene.stream)
    made = "CREATE TABLE ledger (who VARCHAR, much BIGINT)"
    for sql in (made, "INSERT INTO ledger VALUES ('me', 1)", 'INSERT INTO secret (data) VALUES (\'{"who": "me"}\')'):
        assert isinstance(spy.ask(m.Query(sql, [])), m.QueryResponse)
    assert isinstance(owner.ask(m.Query("INSERT INTO ledger VALUES ('them')", [])), m.QueryResponse)
    for sql, own, others in (
        ("SELECT * FROM ledger", [["me", 1]], [["them"]]),
        ("SELECT who FROM secret", [["me"]], [["a secret"], ["a secret"]]),
        ("SELECT who FROM ledger JOIN secret USING (who)", [["me"]], []),
        ("WITH x AS (SELECT * FROM ledger) SELECT COUNT(*) FROM x, secret", [[1]], [[2]]),
        ("SELECT COUNT(*) FROM information_schema.tables", [[3]], [[2]]),
        (f"SELECT COUNT(*) FROM secret AT OFFSET {scene.fixture.broker.position}", [[1]], [[2]]),
        ("SHOW INDEXES FROM ledger", [], [["ledger_pkey", "who"]]),
    ):
        for peer, rows in ((spy, own), (owner, others), (spy, own)):  # the engines are the same ones
            reply = peer.ask(m.Query(sql, []))
            assert isinstance(reply, m.QueryResponse), reply
            assert reply.rows == rows, sql
    assert owner.read(scene.stream).events == [SECRET, SECRET]
    assert spy.refused(m.QueryAt("SELECT * FROM secret", [], 20)).code == ErrorCode.TABLE_NOT_FOUND  # it was not yet
    assert isinstance(owner.ask(m.Query("DROP TABLE ledger", [])), m.QueryResponse)
    described = spy.ask(m.DescribeTable("ledger"))
    assert isinstance(described, m.DescribeTableResponse)
    assert [column.name for column in described.columns] == ["who", "much"]
    scene.close()


# -- bugs that must be found


def _no_check_by_the_session(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KimberliteContext, "check_tenant", lambda *_: None)


def _access_without_tenants(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Access, "allows", lambda *_: True)
    for name in ("require", "require_any", "require_member"):
        patch.setattr(Access, name, lambda *_: None)


def _access_and_session_without_tenants(patch: pytest.MonkeyPatch) -> None:
    _access_without_tenants(patch)
    _no_check_by_the_session(patch)


def _streams_whatever_the_scope(patch: pytest.MonkeyPatch) -> None:
    plain = id_lookup.stream

    def stream(state: Any, access: Any, identity: Any, scope: Any, number: int) -> Any:
        topic = state.topics_by_id.get(number)
        return (topic, 0) if topic is not None else plain(state, access, identity, scope, number)

    patch.setattr(id_lookup, "stream", stream)


def _queries_in_another_scope(patch: pytest.MonkeyPatch) -> None:
    plain = Queries.run

    def run(queries: Any, identity: Any, _scope: Any, *more: Any) -> Any:
        where = {str(OWN): OTHER}.get(identity.tenant, identity.tenant)
        return plain(queries, ADMINISTRATOR, Scope(str(where), "default"), *more)

    patch.setattr(Queries, "run", run)


def _tables_of_all_tenants(patch: pytest.MonkeyPatch) -> None:
    def known(capability: Any, *_: Any) -> dict[str, Any]:
        found = capability._state_log.state.topics_by_id.values()
        return {topic.name: topic for topic in found if topic.scope != DEFAULT_SCOPE and not is_internal(topic.name)}

    patch.setattr(QueryCapability, "names", lambda capability, number: sorted(known(capability, number)))
    patch.setattr(QueryCapability, "_known", known)


def _names_for_all_tenants(patch: pytest.MonkeyPatch) -> None:
    plain = topic_rules.create

    def create(state: Any, limits: Any, scope: Any, name: str, *more: Any) -> Any:
        if any(topic.name == name for topic in state.topics_by_id.values()):
            raise TopicExists(name, 1)
        return plain(state, limits, scope, name, *more)

    patch.setattr(topic_rules, "create", create)


def _subscriptions_of_all_connections(patch: pytest.MonkeyPatch) -> None:
    found: dict[int, Any] = {}
    plain, made = Subscriptions._find, Subscriptions.open

    def open_one(subscriptions: Any, *arguments: Any) -> Any:
        answer = made(subscriptions, *arguments)
        found.update(subscriptions._open)
        return answer

    patch.setattr(Subscriptions, "open", open_one)
    patch.setattr(Subscriptions, "_find", lambda one, scope, number: found.get(number) or plain(one, scope, number))


def _keys_of_all_tenants(patch: pytest.MonkeyPatch) -> None:
    plain = Keys._find

    def find(kept: Any, identity: Any, number: int, missing: str) -> Any:
        return kept._state_log.state.keys.get(number) or plain(kept, identity, number, missing)

    patch.setattr(Keys, "_find", find)
    patch.setattr(Keys, "_require", lambda *_: None)


def _tenants_for_all(patch: pytest.MonkeyPatch) -> None:
    for name in ("create", "get", "list", "delete"):
        plain = getattr(Tenants, name)
        patch.setattr(Tenants, name, lambda kept, _, *more, plain=plain: plain(kept, ADMINISTRATOR, *more))
    patch.setattr(tenant_operations, "EVERYWHERE", Scope(str(OWN), "*"))


def _all_tenants_counted(patch: pytest.MonkeyPatch) -> None:
    plain = server.info

    def info(context: KimberliteContext, request: m.GetServerInfo) -> Reply:
        reply = plain(context, request)
        count = len(context.broker.tenants.list(ADMINISTRATOR))
        return Reply(msgspec.structs.replace(reply.message, tenant_count=count))

    patch.setitem(HANDLERS, m.GetServerInfo, reads(info))  # type: ignore[misc]


def _one_audit_log(patch: pytest.MonkeyPatch) -> None:
    query, verify = Audit.query, Audit.verify
    patch.setattr(Audit, "query", lambda log, _, __, *more: query(log, ADMINISTRATOR, str(OTHER), *more))
    patch.setattr(Audit, "verify", lambda log, *_: verify(log, ADMINISTRATOR, Scope(str(OTHER), "default")))


def _refusals_in_the_log_of_whoever_was_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(audit, "_home", lambda _state, identity, scope, **_: scope.tenant if scope else identity.tenant)


OF_STREAMS: Final = (m.ReadEvents, m.AppendEvents, m.StreamInfo, m.Subscribe)
OF_KEYS: Final = (m.ApiKeyRegister, m.ApiKeyRevoke, m.ApiKeyList, m.ApiKeyRotate)
OF_TENANTS: Final = (m.TenantCreate, m.TenantList, m.TenantGet, m.TenantDelete)

PLANTED: Final = {
    _no_check_by_the_session: tuple(ABOUT),
    _access_without_tenants: (*OF_KEYS, *OF_TENANTS),
    _access_and_session_without_tenants: (*OF_STREAMS, *SQL, m.AuditQuery),
    _streams_whatever_the_scope: OF_STREAMS,
    _queries_in_another_scope: SQL,
    _tables_of_all_tenants: SQL,
    _names_for_all_tenants: (m.CreateStream, m.Query),
    _subscriptions_of_all_connections: (m.SubscribeCredit, m.Unsubscribe),
    _keys_of_all_tenants: OF_KEYS,
    _tenants_for_all: OF_TENANTS,
    _all_tenants_counted: (m.GetServerInfo,),
    _one_audit_log: (m.AuditQuery, m.VerifyAuditChain),
    _refusals_in_the_log_of_whoever_was_asked_for: (m.TenantGet, m.ApiKeyRegister, m.ApiKeyList),
}
"""Mistakes that somebody could make, and the kinds of requests that give them away."""


@pytest.mark.parametrize(
    ("bug", "kind"),
    [(bug, kind) for bug, kinds in PLANTED.items() for kind in kinds],
    ids=lambda value: value.__name__.strip("_"),
)
def test_a_planted_bug_is_found(
    bug: Any, kind: type[m.Message], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        check(kind, CREDENTIALS[0])
    errors = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert not [error for error in errors if isinstance(error, TypeError | AttributeError)], "the bug is itself wrong"
