"""Every operation of the API × identity: nobody, somebody of another tenant, with too little, with an expired key or
token, and with just enough. A route without a row here fails."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.http.peer import Answer, Peer, basic

from penstock.admin.api import Api, routes
from penstock.admin.environment import ConnectionView, Environment
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.queues.dead_letter import SUFFIX
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security import token_keys
from penstock.broker.security.access import (
    ADMINISTRATION,
    ADMINISTRATOR,
    ANONYMOUS,
    AccessPolicy,
    Grant,
    Identity,
    Permission,
)
from penstock.broker.security.audit import AuditPolicy
from penstock.broker.security.key import KeyTerms
from penstock.broker.security.lockout import LockoutPolicy
from penstock.broker.security.token import TokenPolicy
from penstock.broker.security.user import Acl
from penstock.log.errors import LogError

OPERATOR = Identity("operator")  # of no tenant, by a grant of the configuration
P = Permission
TOKEN_KEY = token_keys.read("shared", b"0123456789abcdef0123456789abcdef")


class Row(NamedTuple):
    """A request that works, and who may make it."""

    path: str
    needs: tuple[Permission, ...] = (P.DESCRIBE,)
    body: object = None
    status: int = 200
    everywhere: bool = False  # takes a grant for all tenants
    hidden: bool = False  # who may not is told that it is not there
    open: bool = False  # is told to everybody, and says nothing of others
    login: bool = False  # is the login itself: who asks is not looked at


ADMIN = (P.ADMIN,)
RECORDS = {"records": [{"value_text": "x"}]}
ROWS: dict[str, Row] = {
    "broker_show": Row("/broker"),
    "broker_list_doors": Row("/doors"),
    "broker_metrics": Row("/metrics", (P.METRICS,), everywhere=True),
    "broker_config": Row("/config", ADMIN, everywhere=True),
    "broker_list_connections": Row("/connections", ADMIN, everywhere=True),
    "broker_close_connection": Row("/connections/7", ADMIN, everywhere=True),
    "topic_list": Row("/topics"),
    "topic_create": Row("/topics", (P.CREATE,), {"name": "new", "partitions": 2}, 201),
    "topic_get": Row("/topics/orders"),
    "topic_change": Row("/topics/orders", (P.ALTER, P.DESCRIBE), {"retention_seconds": 60}),
    "topic_delete": Row("/topics/orders", (P.DELETE,)),
    "record_look": Row("/topics/orders/records", (P.READ,)),
    "record_produce": Row("/topics/orders/records", (P.WRITE,), RECORDS, 201),
    "search_start": Row("/topics/orders/records/search", (P.READ,), {}, 202),
    "search_found": Row("/jobs/1/records", ADMIN, hidden=True),
    "group_list": Row("/groups"),
    "group_get": Row("/groups/g/orders"),
    "group_reset": Row("/groups/g/orders/offsets", (P.COMMIT, P.READ), {"to": "earliest"}),
    "group_delete": Row("/groups/g/orders", (P.DELETE,)),
    "session_open": Row("/session", (P.READ,), {"user": "bob", "password": "a word"}, 201, login=True),
    "session_show": Row("/session", (P.READ,), None, 401, login=True),
    "session_close": Row("/session", (P.READ,), login=True),
    "user_show": Row("/identity", (P.READ,), open=True),
    "user_list": Row("/users", ADMIN),
    "user_create": Row("/users", ADMIN, {"name": "new", "password": "a word"}, 201),
    "user_get": Row("/users/bob", ADMIN),
    "user_update": Row("/users/bob", ADMIN, {"enabled": True}),
    "user_delete": Row("/users/bob", ADMIN),
    "user_change_password": Row("/users/bob/password", ADMIN, {"password": "another"}),
    "key_list": Row("/keys", ADMIN),
    "key_add": Row("/keys", ADMIN, {"name": "new", "permissions": ["read"]}, 201),
    "key_revoke": Row("/keys/1", ADMIN, hidden=True),
    "key_rotate": Row("/keys/1/rotate", ADMIN, status=201, hidden=True),
    "role_list": Row("/roles", open=True),
    "role_set": Row("/roles/new", ADMIN, {"permissions": ["read"]}),
    "role_delete": Row("/roles/helper", ADMIN),
    "acl_list": Row("/acls", ADMIN),
    "acl_get": Row("/acls/listed", ADMIN),
    "acl_set": Row("/acls/listed", ADMIN, {"users": ["bob"]}),
    "acl_delete": Row("/acls/listed", ADMIN),
    "tenant_list": Row("/tenants", ADMIN),
    "tenant_get": Row("/tenants/default", ADMIN),
    "tenant_create": Row("/tenants/new", ADMIN, {}, everywhere=True),
    "tenant_delete": Row("/tenants/default", ADMIN, everywhere=True),
    "schema_list": Row("/schemas"),
    "schema_versions": Row("/schemas/order"),
    "schema_register": Row("/schemas/new", (P.ALTER, P.DESCRIBE), {"kind": "json", "definition": "e30="}, 201),
    "schema_set_mode": Row("/schemas/order", (P.ALTER,), {"mode": "none"}),
    "schema_delete": Row("/schemas/order", (P.ALTER,)),
    "schema_check": Row("/schemas/order/compatibility", body={"kind": "json", "definition": "e30="}),
    "schema_get": Row("/schemas/order/latest"),
    "schema_validate": Row("/schemas/order/1", body={"message": "e30="}),
    "schema_decode": Row("/schemas/order/1/decode", body={"message": "e30="}),
    "schema_delete_version": Row("/schemas/order/1", (P.ALTER, P.DESCRIBE)),
    "sql_run": Row("/sql", (P.READ,), {"sql": "SELECT 1"}, 503),  # no process carries them out here
    "dead_letter_topics": Row("/dead-letters"),
    "dead_letter_look": Row("/topics/orders/dead-letters", (P.READ,)),
    "dead_letter_replay": Row("/topics/orders/dead-letters/0/replay", (P.READ, P.WRITE)),
    "dead_letter_purge": Row("/topics/orders/dead-letters", (P.DELETE,)),
    "dead_letter_delete": Row("/topics/orders/dead-letters/0", (P.DELETE,)),
    "dead_letter_replay_many": Row("/topics/orders/dead-letters/replay", (P.READ, P.WRITE), {}, 202),
    "dead_letter_purge_many": Row("/topics/orders/dead-letters/purge", (P.READ, P.DELETE), {}, 202),
    "queue_list": Row("/queues"),
    "queue_get": Row("/queues/1", (P.READ,)),
    "queue_delete": Row("/queues/1", (P.READ,)),
    "delayed_list": Row("/delayed"),
    "delayed_cancel": Row("/delayed/1", (P.WRITE,)),
    "transaction_list": Row("/transactions", ADMIN),
    "transaction_abort": Row("/transactions/ID", ADMIN),
    "cache_list": Row("/caches", (P.CACHE_READ,)),
    "cache_keys": Row("/caches/sessions", (P.CACHE_READ,)),
    "cache_get": Row("/caches/sessions/k", (P.CACHE_READ,)),
    "cache_put": Row("/caches/sessions/k", (P.CACHE_WRITE,), {"text": "v"}),
    "cache_compare_and_set": Row(
        "/caches/sessions/k/compare-and-set", (P.CACHE_READ, P.CACHE_WRITE), {"value": "eA=="}
    ),
    "cache_increment": Row("/caches/sessions/count/increment", (P.CACHE_READ, P.CACHE_WRITE), {}),
    "cache_delete": Row("/caches/sessions/k", (P.CACHE_WRITE,)),
    "table_list": Row("/tables"),
    "table_get": Row("/tables/orders", (P.DESCRIBE, P.READ), status=404),
    "repair_ask": Row("/tables/orders/repair", (P.ALTER,), {}, 202),
    "repair_get": Row("/tables/orders/repair", (P.ALTER,)),
    "repair_verify": Row("/tables/orders/verify", (P.ALTER,), None, 202),
    "audit_query": Row("/audit", (P.AUDIT,)),
    "audit_export": Row("/audit/export", (P.AUDIT,)),
    "audit_verify": Row("/audit/verify", (P.AUDIT,), {}),
    # No broker runs around this one, so that there is nothing to copy; tests/cli/test_backup.py has one.
    "backup_create": Row("/backups", ADMIN, None, 503, everywhere=True),
    "backup_list": Row("/backups/1/files", ADMIN, None, 404, everywhere=True),
    "backup_read": Row("/backups/1/files/0", ADMIN, None, 404, everywhere=True),
    "backup_delete": Row("/backups/1", ADMIN, None, 404, everywhere=True),
    "job_list": Row("/jobs"),
    "job_get": Row("/jobs/1", ADMIN, hidden=True),
    "job_cancel": Row("/jobs/1", ADMIN, hidden=True),
    "pipeline_list": Row("/pipelines", ADMIN, everywhere=True),
    "pipeline_restart": Row("/pipelines/none/restart", ADMIN, None, 404, everywhere=True),
}


class Scene:
    """A broker in which every row finds what it asks for."""

    def __init__(self) -> None:
        grants = [ADMINISTRATION, Grant(OPERATOR.name, frozenset({P.ADMIN, P.METRICS}))]
        self.fixture = fixture = BrokerFixture(
            access=AccessPolicy(True, grants),
            audit=AuditPolicy(enabled=True),
            lockout=LockoutPolicy(1_000_000, 60),
            tokens=TokenPolicy((TOKEN_KEY,)),
        )
        broker = fixture.broker
        broker.keys.add(ADMINISTRATOR, KeyTerms("one", "default", [P.READ]))
        for topic in ("orders", "listed", "orders" + SUFFIX):
            broker.topics.create(ADMINISTRATOR, DEFAULT_SCOPE, topic, 1)
        broker.produce.append(ADMINISTRATOR, DEFAULT_SCOPE, "orders", 0, [b"{}"] * 3)
        broker.produce.append(ADMINISTRATOR, DEFAULT_SCOPE, "orders" + SUFFIX, 0, [b"{}"])
        broker.groups.commit(ADMINISTRATOR, DEFAULT_SCOPE, "g", "orders", 0, 1)
        broker.queues.create(ADMINISTRATOR, DEFAULT_SCOPE, "orders", at_least_once=True)
        broker.delays.schedule(ADMINISTRATOR, DEFAULT_SCOPE, "orders", b"{}", None, 0, 60_000_000)
        broker.caches.put(ADMINISTRATOR, broker.caches.name("default", "default", "sessions"), "k", b"v", None)
        broker.users.set_role(ADMINISTRATOR, "default", "helper", ["read"], "")
        broker.users.set_acl(ADMINISTRATOR, DEFAULT_SCOPE, Acl("listed", False, ("bob",)))
        broker.tenants.create(ADMINISTRATOR, "acme")
        for work in (
            broker.users.create(ADMINISTRATOR, "default", "bob", "a word"),
            broker.users.create(ADMINISTRATOR, "acme", "carol", "a word", ("admin",)),
            broker.schemas.register(ADMINISTRATOR, DEFAULT_SCOPE, "order", SchemaKind.JSON, b"{}"),
        ):
            work.run()
            work.finish()
        fixture.commit()
        self.transaction = broker.transactions.begin(ADMINISTRATOR, "a connection", DEFAULT_SCOPE)
        self.closed: list[int] = []
        view = ConnectionView(7, "flymq", "127.0.0.1:1", "", 0, 0, 0, 0, False, "")
        self.environment = Environment(connections=lambda: [view], close_connection=self._close)
        self.api = Api(broker, self.environment)
        search = Row("/topics/orders/records/search", body={})
        assert self.ask("POST", search, ADMINISTRATOR).json["id"] == 1

    def _close(self, number: int) -> bool:
        self.closed.append(number)
        return number == 7

    def key(self, tenant: str, *permissions: Permission, expires: int | None = None) -> str:
        new, _ = self.fixture.broker.keys.add(
            ADMINISTRATOR, KeyTerms("k", tenant, list(permissions), ("*",), "*", expires)
        )
        self.fixture.commit()
        return str(new.secret)

    def ask(self, method: str, row: Row, identity: Identity = ANONYMOUS, query: str = "", **headers: str) -> Answer:
        path = f"/api/v1{row.path.replace('ID', self.transaction)}{query}"
        return Peer(self.fixture, self.api, identity, cookies=True).ask(method, path, row.body, **headers)


ROUTES = {route.name: route for route in routes(BrokerFixture().broker, Environment())}
NAMES = sorted(ROUTES)


@pytest.fixture(scope="module")
def scene() -> Scene:
    """For requests that change nothing, because they are refused."""
    return Scene()


def test_every_route_has_a_row_and_a_name_of_its_own() -> None:
    assert set(ROWS) == set(ROUTES)
    assert len(ROUTES) == len(routes(BrokerFixture().broker, Environment()))


@pytest.mark.parametrize("name", NAMES)
def test_nobody(scene: Scene, name: str) -> None:
    row, method = ROWS[name], ROUTES[name].method
    answer = scene.ask(method, row)
    if row.login:
        assert answer.status == row.status, answer.body
        return
    assert answer.status == (200 if row.open else 401), answer.body
    if not row.open:
        assert answer.code == "login_required" and "www-authenticate" in answer.headers


@pytest.mark.parametrize("name", NAMES)
def test_an_expired_or_invented_key(scene: Scene, name: str) -> None:
    method, row = ROUTES[name].method, ROWS[name]
    key = scene.key("default", P.ADMIN, expires=scene.fixture.now + 1)
    scene.fixture.pass_time(1)
    for secret in (key, key[:-4] + "0000"):
        answer = scene.ask(method, row, x_api_key=secret)
        assert (answer.status, answer.code) == (401, "wrong_credentials")


@pytest.mark.parametrize("name", NAMES)
def test_an_expired_token(scene: Scene, name: str) -> None:
    method, row = ROUTES[name].method, ROWS[name]
    now = scene.fixture.now // 1_000_000
    for lives, right in ((3600, True), (-3600, False)):
        claims = {"sub": "ann", "tenant_id": "default", "roles": ["admin"], "iat": now - 7200, "exp": now + lives}
        bearer = f"Bearer {token_keys.sign(claims, TOKEN_KEY)}"
        if right:  # it is the time that makes the difference
            assert scene.ask("GET", Row("/identity"), authorization=bearer).json["name"] == "token:ann"
        else:
            answer = scene.ask(method, row, authorization=bearer)
            assert (answer.status, answer.code) == (401, "wrong_credentials")


@pytest.mark.parametrize("name", NAMES)
def test_an_administrator_of_another_tenant(scene: Scene, name: str) -> None:
    row, method = ROWS[name], ROUTES[name].method
    key = scene.key("acme", P.ADMIN)
    if row.login:
        pytest.skip("whoever asks: it is a login")
    answer = scene.ask(method, row, query="?tenant=default", x_api_key=key)
    if row.open or name == "tenant_list":
        assert answer.status == 200 and "default" not in str(answer.json)
    else:
        assert answer.status == (404 if row.hidden else 403), answer.body
    user = scene.ask(method, row, query="?tenant=default", authorization=basic("carol", "a word"))
    assert user.status == 401  # there is no such user in that tenant


@pytest.mark.parametrize("name", NAMES)
def test_too_little(scene: Scene, name: str) -> None:
    row, method = ROWS[name], ROUTES[name].method
    if row.open or row.login:
        pytest.skip("is told to everybody")
    mine = set(row.needs)
    lacking = [list(mine - {one}) for one in mine] if len(mine) > 1 else [[]]
    for some in lacking:
        others = [P.CACHE_READ] if P.CACHE_READ not in mine else [P.COMMIT]
        if name in ("broker_show", "broker_list_doors", "job_list"):
            continue  # whoever may do anything may see these
        answer = scene.ask(method, row, x_api_key=scene.key("default", *some, *others))
        assert answer.status == 403, (some, answer.body)
        assert answer.code == "access_denied"


def test_what_is_refused_changes_nothing(scene: Scene) -> None:
    """After all of the above, if it ran before. Jobs that were refused have not begun."""
    assert scene.ask("GET", Row("/jobs"), ADMINISTRATOR).json["next"] is None
    assert scene.closed == []
    broker = scene.fixture.broker
    assert broker.topics.exists(DEFAULT_SCOPE, "orders") and not broker.topics.exists(DEFAULT_SCOPE, "new")
    assert broker.topics.end_offset(ADMINISTRATOR, DEFAULT_SCOPE, "orders", 0) == 3
    assert [user.name for user in broker.users.list(ADMINISTRATOR, "default")] == ["bob"]
    assert [schema.name for schema in broker.schemas.list(ADMINISTRATOR, DEFAULT_SCOPE)] == ["order"]


@pytest.mark.parametrize("name", NAMES)
def test_just_enough(name: str) -> None:
    scene, row, method = Scene(), ROWS[name], ROUTES[name].method
    if row.everywhere:
        refused = scene.ask(method, row, x_api_key=scene.key("default", P.ADMIN))
        assert refused.status == 403
        answer = scene.ask(method, row, OPERATOR)
    else:
        answer = scene.ask(method, row, x_api_key=scene.key("default", *row.needs))
    assert answer.status == row.status, answer.body


def test_an_error_of_the_log_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()

    def fail(*_: Any, **__: Any) -> Any:
        raise LogError("the disk is gone")

    monkeypatch.setattr(scene.fixture.broker.topics, "list", fail)
    answer = scene.ask("GET", ROWS["topic_list"], OPERATOR)
    assert (answer.status, answer.code) == (503, "log_error")


@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", "/keys/x"), ("GET", "/queues/x"), ("DELETE", "/delayed/x"), ("GET", "/schemas/order/x")],
)
def test_what_is_no_number_is_refused_as_any_number_is(scene: Scene, method: str, path: str) -> None:
    assert scene.ask(method, Row(path)).status == 401
    assert scene.ask(method, Row(path), ADMINISTRATOR).status in (403, 404)
