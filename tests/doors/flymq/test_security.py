"""Permissions: every opcode, sent by every user; and logging in."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

import pytest
from tests.broker.broker_fixture import BrokerFixture, later
from tests.doors.flymq.peer import Peer
from tests.doors.flymq.seeded_broker import FITS, NOBODY, ROLES, SCHEMA, UNFIT, WORD, SeededBroker
from tests.doors.permissions import without

from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy
from penstock.broker.security.lockout import LockoutPolicy
from penstock.broker.security.passwords import MAX_PASSWORD
from penstock.broker.security.user import Acl, UserPolicy
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.doors.flymq.handlers.table import HANDLERS
from penstock.doors.flymq.request_context import FlyMqSettings
from penstock.doors.flymq.session import FlyMqSession
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec import requests
from penstock.wire.flymq.opcodes import Op

LOG_IN, UNAUTHORIZED, DISABLED = "authentication required", "unauthorized", "user account is disabled"
DENIALS = {LOG_IN, UNAUTHORIZED, DISABLED}


class Need(enum.Enum):
    """The permission that a request needs; the values are the users of the seeded broker who have it."""

    NOTHING = (*ROLES, NOBODY)
    READ = ("consumer", "clerk", "admin", "second")
    WRITE = ("producer", "clerk", "admin", "second")
    BOTH = ("clerk", "admin", "second")
    EITHER = ("consumer", "producer", "clerk", "admin", "second")
    SOMETHING = (*EITHER, "owner")  # to see in the scope: the reply holds no more than that
    WRITE_SOMETHING = (*WRITE, "owner")
    ADMIN = ("admin", "second")
    OWN = frozenset[str]()  # what somebody else has begun is not there; an empty tuple is no value in Python 3.11.2


class Row(NamedTuple):
    need: Need
    request: Callable[[SeededBroker, str], m.Request]  # about a topic
    topic: bool = True  # whether it is about one


AUDIT = m.AuditQuery(0, 0, [], "", "", "", "", 10, 0)

TABLE: dict[Op, Row] = {
    Op.PRODUCE: Row(Need.WRITE, lambda _, t: m.Produce(t, None, FITS)),
    Op.CONSUME: Row(Need.READ, lambda _, t: m.Consume(t, 0, 0)),
    Op.CREATE_TOPIC: Row(Need.ADMIN, lambda _, t: m.CreateTopic(t, 1)),
    Op.METADATA: Row(Need.EITHER, lambda _, t: m.Metadata(t)),
    Op.SUBSCRIBE: Row(Need.READ, lambda _, t: m.Subscribe(t, "new", 0, "earliest")),
    Op.COMMIT: Row(Need.READ, lambda _, t: m.Commit(t, "g", 0, 0)),
    Op.FETCH: Row(Need.READ, lambda _, t: m.Fetch(t, 0, 0, 10)),
    Op.LIST_TOPICS: Row(Need.SOMETHING, lambda *_: m.ListTopics(), topic=False),
    Op.DELETE_TOPIC: Row(Need.ADMIN, lambda _, t: m.DeleteTopic(t)),
    Op.CONSUME_ZERO_COPY: Row(Need.READ, lambda _, t: m.ConsumeZeroCopy(t, 0, 0)),
    Op.FETCH_BINARY: Row(Need.READ, lambda _, t: m.FetchBinary(t, 0, 0, 10, "(a+)+$")),
    Op.PRODUCE_BATCH: Row(Need.WRITE, lambda _, t: m.ProduceBatch(t, [None], [FITS], [-1])),
    Op.PRODUCE_RECORDS: Row(Need.WRITE, lambda _, t: m.ProduceRecords(t, "p", 0, 0, [None], [FITS], [-1], [])),
    Op.FETCH_RECORDS: Row(Need.READ, lambda _, t: m.FetchRecords(t, 0, 0, 10)),
    Op.REGISTER_SCHEMA: Row(Need.ADMIN, lambda _, t: m.RegisterSchema(t, "json", b'{"type": "object"}')),
    Op.GET_SCHEMA: Row(Need.EITHER, lambda _, t: m.GetSchema(t, 0)),
    Op.LIST_SCHEMAS: Row(Need.EITHER, lambda _, t: m.ListSchemas(t)),
    Op.VALIDATE_SCHEMA: Row(Need.EITHER, lambda _, t: m.ValidateSchema(t, UNFIT)),
    Op.PRODUCE_WITH_SCHEMA: Row(Need.WRITE, lambda _, t: m.ProduceWithSchema(t, t, UNFIT)),
    Op.DELETE_SCHEMA: Row(Need.ADMIN, lambda _, t: m.DeleteSchema(t, 0)),
    Op.SET_COMPATIBILITY: Row(Need.ADMIN, lambda _, t: m.SetCompatibility(t, "none")),
    Op.FETCH_DLQ: Row(Need.READ, lambda _, t: m.FetchDlq(t, 10, 0)),
    Op.REPLAY_DLQ: Row(Need.BOTH, lambda e, t: m.ReplayDlq(t, e.numbers.letters.get(t, "1-0"))),
    Op.PURGE_DLQ: Row(Need.ADMIN, lambda _, t: m.PurgeDlq(t)),
    Op.PRODUCE_DELAYED: Row(Need.WRITE, lambda _, t: m.ProduceDelayed(t, FITS, 1000)),
    Op.CANCEL_DELAYED: Row(
        Need.WRITE_SOMETHING, lambda e, _: m.CancelDelayed(str(e.numbers.delayed["mine"])), topic=False
    ),
    Op.PRODUCE_WITH_TTL: Row(Need.WRITE, lambda _, t: m.ProduceWithTtl(t, FITS, 1000)),
    Op.TXN_BEGIN: Row(Need.WRITE_SOMETHING, lambda *_: m.BeginTransaction(), topic=False),
    Op.TXN_COMMIT: Row(Need.OWN, lambda e, _: m.CommitTransaction(e.numbers.transaction), topic=False),
    Op.TXN_ROLLBACK: Row(Need.OWN, lambda e, _: m.RollbackTransaction(e.numbers.transaction), topic=False),
    Op.TXN_PRODUCE: Row(Need.WRITE, lambda e, t: m.ProduceInTransaction(e.numbers.transaction, t, FITS)),
    Op.CLUSTER_JOIN: Row(Need.ADMIN, lambda *_: m.JoinCluster("h:1"), topic=False),
    Op.CLUSTER_LEAVE: Row(Need.ADMIN, lambda *_: m.LeaveCluster(), topic=False),
    Op.CLUSTER_STATUS: Row(Need.SOMETHING, lambda *_: m.GetClusterStatus(), topic=False),
    Op.CLUSTER_METADATA: Row(Need.EITHER, lambda _, t: m.GetClusterMetadata(t)),
    Op.GET_OFFSET: Row(Need.READ, lambda _, t: m.GetOffset(t, "g", 0)),
    Op.RESET_OFFSET: Row(Need.READ, lambda _, t: m.ResetOffset(t, "g", 0, "latest")),
    Op.LIST_GROUPS: Row(Need.SOMETHING, lambda *_: m.ListGroups(), topic=False),
    Op.DESCRIBE_GROUP: Row(Need.EITHER, lambda _, t: m.DescribeGroup(t, "g")),
    Op.GET_LAG: Row(Need.READ, lambda _, t: m.GetLag(t, "g", 0)),
    Op.DELETE_GROUP: Row(Need.ADMIN, lambda _, t: m.DeleteGroup(t, "g")),
    Op.SEEK_TO_TIMESTAMP: Row(Need.READ, lambda _, t: m.SeekToTimestamp(t, "g", 0, 0)),
    Op.AUTH: Row(Need.NOTHING, lambda *_: m.Authenticate("nobody", "wrong"), topic=False),
    Op.WHOAMI: Row(Need.NOTHING, lambda *_: m.WhoAmI(), topic=False),
    Op.USER_CREATE: Row(Need.ADMIN, lambda *_: m.CreateUser("new", "word", "", ["admin"]), topic=False),
    Op.USER_DELETE: Row(Need.ADMIN, lambda *_: m.DeleteUser("guest"), topic=False),
    Op.USER_UPDATE: Row(Need.ADMIN, lambda *_: m.UpdateUser("guest", "", "", ["admin"], True), topic=False),
    Op.USER_LIST: Row(Need.ADMIN, lambda *_: m.ListUsers(), topic=False),
    Op.USER_GET: Row(Need.ADMIN, lambda *_: m.GetUser("guest"), topic=False),
    Op.ACL_SET: Row(Need.ADMIN, lambda _, t: m.SetAcl(t, False, ["guest"], [])),
    Op.ACL_GET: Row(Need.ADMIN, lambda _, t: m.GetAcl(t)),
    Op.ACL_DELETE: Row(Need.ADMIN, lambda _, t: m.DeleteAcl(t)),
    Op.ACL_LIST: Row(Need.ADMIN, lambda *_: m.ListAcls(), topic=False),
    Op.PASSWORD_CHANGE: Row(Need.ADMIN, lambda *_: m.ChangePassword("nobody", "new", "old", []), topic=False),
    Op.ROLE_LIST: Row(Need.NOTHING, lambda *_: m.ListRoles(), topic=False),
    Op.ROLE_SET: Row(Need.ADMIN, lambda *_: m.SetRole("guests", ["admin"], ""), topic=False),
    Op.ROLE_DELETE: Row(Need.ADMIN, lambda *_: m.DeleteRole("clerk"), topic=False),
    Op.USE_SCOPE: Row(Need.NOTHING, lambda *_: m.UseScope("default", "default"), topic=False),
    Op.AUDIT_QUERY: Row(Need.ADMIN, lambda *_: AUDIT, topic=False),
    Op.AUDIT_EXPORT: Row(Need.ADMIN, lambda *_: m.AuditExportRequest(AUDIT, "json"), topic=False),
}
"""Every opcode, what it needs, and an example of it."""

every_opcode = pytest.mark.parametrize("op", TABLE, ids=lambda op: op.name)
OF_A_TOPIC = [op for op, row in TABLE.items() if row.topic]
every_opcode_of_a_topic = pytest.mark.parametrize("op", OF_A_TOPIC, ids=lambda op: op.name)


def test_every_opcode_has_a_row() -> None:
    assert TABLE.keys() == HANDLERS.keys()
    seeded_broker = SeededBroker()
    for op, row in TABLE.items():
        assert requests.OPCODES[type(row.request(seeded_broker, "mine"))] == op


def test_the_table_names_a_permission_that_the_request_needs() -> None:
    seeded_broker = SeededBroker()
    for op, row in TABLE.items():
        permission = HANDLERS[op].permission
        if permission is None:
            assert row.need in (Need.NOTHING, Need.OWN), op
            continue
        with without(permission):
            assert said(seeded_broker.peer("admin"), row.request(seeded_broker, "mine")) in DENIALS, op


def said(peer: Peer, request: m.Request) -> str:
    """The text of a refusal; empty if it was none. Any other reply counts as a refusal."""
    reply = peer.ask(request)
    assert not peer.closed
    return reply.message if isinstance(reply, m.Failure) else ""


# -- by role


@every_opcode
def test_who_lacks_what_it_needs_is_denied_and_nothing_happens(op: Op) -> None:
    seeded_broker, row = SeededBroker(), TABLE[op]
    before = seeded_broker.all()
    for name in (NOBODY, *ROLES):
        if name not in row.need.value and row.need is not Need.OWN:
            assert said(seeded_broker.peer(name), row.request(seeded_broker, "mine")) == (
                LOG_IN if name == NOBODY else UNAUTHORIZED
            )
            assert seeded_broker.all() == before, name


@every_opcode
def test_who_has_what_it_needs_is_not_denied(op: Op) -> None:
    row = TABLE[op]
    for name in row.need.value:
        seeded_broker = SeededBroker()
        text = said(seeded_broker.peer(name), row.request(seeded_broker, "mine"))
        assert text not in DENIALS and "internal" not in text, name


ENDS: dict[Op, Callable[[str], m.Request]] = {
    Op.TXN_COMMIT: m.CommitTransaction,
    Op.TXN_ROLLBACK: m.RollbackTransaction,
}


@pytest.mark.parametrize("op", ENDS, ids=lambda op: op.name)
def test_a_transaction_of_somebody_else_is_not_there(op: Op) -> None:
    seeded_broker, row = SeededBroker(), TABLE[op]
    before = seeded_broker.all()
    number = seeded_broker.numbers.transaction
    invented = "txn-" + "0" * (len(number) - 4)
    for name in (NOBODY, *ROLES):
        if name != "owner":
            peer = seeded_broker.peer(name)
            assert said(peer, row.request(seeded_broker, "")) == f"transaction not found: {number}"
            assert said(peer, ENDS[op](invented)) == f"transaction not found: {invented}"
            assert seeded_broker.all() == before
    assert seeded_broker.owner.ask(m.CommitTransaction(number)) == m.TransactionState(number)


def test_a_record_cannot_be_put_into_a_transaction_of_somebody_else() -> None:
    seeded_broker = SeededBroker()
    before = seeded_broker.all()
    number = seeded_broker.numbers.transaction
    for name in ("clerk", "producer", "admin"):
        text = said(seeded_broker.peer(name), m.ProduceInTransaction(number, "mine", b"v"))
        assert text == f"transaction not found: {number}"
    assert seeded_broker.all() == before


# -- somebody else's topic


@every_opcode_of_a_topic
def test_a_topic_that_a_list_keeps_from_others_is_denied_as_if_it_were_not_there(op: Op) -> None:
    seeded_broker, row = SeededBroker(), TABLE[op]
    before = seeded_broker.all()
    clerk = seeded_broker.peer("clerk")
    replies = []
    for topic in ("secret", "ghost"):
        clerk.feed(row.request(seeded_broker, topic))
        seeded_broker.fixture.commit()
        replies.append(clerk.raw())
        assert seeded_broker.all() == before
    assert replies[0] == replies[1] and UNAUTHORIZED.encode() in replies[0]


@every_opcode_of_a_topic
def test_its_owner_may_use_it_and_no_more(op: Op) -> None:
    seeded_broker, row = SeededBroker(), TABLE[op]
    before = seeded_broker.all()
    text = said(seeded_broker.owner, row.request(seeded_broker, "secret"))
    if row.need is Need.ADMIN:
        assert text == UNAUTHORIZED and seeded_broker.all() == before
    else:
        assert text not in DENIALS and "internal" not in text


@every_opcode_of_a_topic
def test_a_denial_says_nothing_about_what_is_there(op: Op) -> None:
    seeded_broker, row = SeededBroker(), TABLE[op]
    for name in (NOBODY, "guest"):
        replies = set()
        for topic in ("mine", "missing", "secret", "ghost", "__audit", "__delayed", "../x", "a\\b", "a\0b", "x" * 300):
            peer = seeded_broker.peer(name)
            peer.feed(row.request(seeded_broker, topic))
            seeded_broker.fixture.commit()
            replies.add(peer.raw())
        assert len(replies) == 1


@pytest.mark.parametrize("group", ["g", "nobodys", ""])
def test_a_denial_says_nothing_about_groups(group: str) -> None:
    producer = SeededBroker().peer("producer")
    for request in (
        m.GetOffset("mine", group, 0),
        m.GetLag("mine", group, 0),
        m.Commit("mine", group, 0, 1),
        m.ResetOffset("mine", group, 0, "latest"),
        m.Subscribe("mine", group, 0, "commit"),
        m.SeekToTimestamp("mine", group, 0, 0),
        m.DeleteGroup("mine", group),
    ):
        assert said(producer, request) == UNAUTHORIZED


def test_a_delayed_record_of_somebody_elses_topic_is_not_there() -> None:
    seeded_broker = SeededBroker()
    before = seeded_broker.all()
    number = seeded_broker.numbers.delayed["secret"]
    clerk = seeded_broker.peer("clerk")
    assert said(clerk, m.CancelDelayed(str(number))) == f"message not found: {number}"
    assert said(clerk, m.CancelDelayed("999")) == "message not found: 999"
    assert seeded_broker.all() == before
    assert seeded_broker.owner.ask(m.CancelDelayed(str(number))) == m.Done()


def test_dead_letters_are_kept_from_those_from_whom_the_topic_is() -> None:
    seeded_broker = SeededBroker()
    clerk, letter = seeded_broker.peer("clerk"), seeded_broker.numbers.letters["secret"]
    for request in (
        m.FetchDlq("secret", 10),
        m.FetchDlq("secret", 0),
        m.Fetch("secret.dlq", 0, 0, 10),
        m.Consume("secret.dlq", 0, 0),
        m.ReplayDlq("secret", letter),
        m.ReplayDlq("secret", ""),
        m.ReplayDlq("secret", None, 0),
        m.Produce("secret.dlq", None, b"made up"),
    ):
        assert said(clerk, request) == UNAUTHORIZED
    # A letter of one topic cannot be had through another one.
    before = seeded_broker.all()
    assert said(clerk, m.ReplayDlq("mine", letter)) == f"message not found: {letter}"
    assert seeded_broker.all() == before


def test_lists_show_what_one_may_see_and_no_more() -> None:
    seeded_broker = SeededBroker()
    clerk, owner, admin = (seeded_broker.peer(name) for name in ("clerk", "owner", "admin"))
    mine, secret = ["mine", "mine.dlq"], ["secret", "secret.dlq"]
    assert clerk.ask(m.ListTopics()) == m.TopicList(mine)
    assert owner.ask(m.ListTopics()) == m.TopicList(secret)
    assert admin.ask(m.ListTopics()) == m.TopicList([*mine, *secret])
    for peer, names in ((clerk, mine), (owner, secret), (admin, mine + secret)):
        placed = peer.ask(m.GetClusterMetadata())
        assert isinstance(placed, m.ClusterMetadata) and [topic.topic for topic in placed.topics] == names
        groups = peer.ask(m.ListGroups())
        assert isinstance(groups, m.GroupList) and {group.topic for group in groups.groups} == set(names[::2])
        schemas = peer.ask(m.ListSchemas())
        assert isinstance(schemas, m.SchemaList) and [schema.name for schema in schemas.schemas] == names[::2]
    # A group without a topic is looked for where one may look.
    assert said(clerk, m.DescribeGroup("", "members")) == "consumer group not found: :members"
    assert said(clerk, m.DescribeGroup("", "nobodys")) == "consumer group not found: :nobodys"
    assert owner.ask(m.DescribeGroup("", "members")) == m.GroupInfo("secret", "members", 1, [])


def test_roles_of_the_tenant_are_for_those_who_belong_to_it() -> None:
    seeded_broker = SeededBroker()
    gone = seeded_broker.peer("guest")
    for peer, there in ((seeded_broker.peer(NOBODY), False), (gone, True)):
        roles = peer.ask(m.ListRoles())
        assert isinstance(roles, m.RoleList)
        assert ("clerk" in [role.name for role in roles.roles]) is there
    seeded_broker.fixture.broker.users.update(ADMINISTRATOR, "default", "guest", enabled=False)
    roles = gone.ask(m.ListRoles())
    assert isinstance(roles, m.RoleList) and "clerk" not in [role.name for role in roles.roles]


# -- the broker's own topics

LOOKING = {Need.READ, Need.EITHER}
MOVES_A_GROUP = {Op.SUBSCRIBE, Op.COMMIT, Op.RESET_OFFSET, Op.SEEK_TO_TIMESTAMP}


@every_opcode_of_a_topic
@pytest.mark.parametrize("topic", ["__audit", "__delayed", "__new"])
def test_an_administrator_may_look_at_the_brokers_own_topics_and_nobody_may_change_them(op: Op, topic: str) -> None:
    seeded_broker, row = SeededBroker(), TABLE[op]
    before = seeded_broker.all()
    admin = seeded_broker.peer("admin")
    # A transaction of the administrator's own, so that it is not that which is refused.
    if op is Op.TXN_PRODUCE:
        begun = admin.ask(m.BeginTransaction())
        assert isinstance(begun, m.TransactionState)
        before = seeded_broker.all()
        request: m.Request = m.ProduceInTransaction(begun.transaction_id, topic, b"v")
    else:
        request = row.request(seeded_broker, topic)
    text = said(admin, request)
    assert text not in DENIALS and "internal error" not in text
    if row.need not in LOOKING and op not in (Op.ACL_GET, Op.ACL_DELETE):  # of which there is none
        assert "broker's own" in text
    if op not in MOVES_A_GROUP:
        assert seeded_broker.all() == before
    assert said(seeded_broker.peer("clerk"), row.request(seeded_broker, topic)) == UNAUTHORIZED


# -- while connected


class Loss(NamedTuple):
    happens: Callable[[BrokerFixture], object]
    text: str


LOSSES = {
    "disabled": Loss(lambda w: w.broker.users.update(ADMINISTRATOR, "default", "second", enabled=False), DISABLED),
    "deleted": Loss(lambda w: w.broker.users.delete(ADMINISTRATOR, "default", "second"), DISABLED),
    "demoted": Loss(lambda w: w.broker.users.update(ADMINISTRATOR, "default", "second", ["guest"]), UNAUTHORIZED),
}


@pytest.mark.parametrize("loss", LOSSES)
@every_opcode
def test_who_loses_the_right_while_connected_is_denied_at_once(op: Op, loss: str) -> None:
    seeded_broker, row = SeededBroker(), TABLE[op]
    peer = seeded_broker.peer("second")
    full, empty = peer.all(m.BeginTransaction(), m.BeginTransaction())
    assert isinstance(full, m.TransactionState) and isinstance(empty, m.TransactionState)
    peer.ask(m.ProduceInTransaction(full.transaction_id, "mine", b"v"))
    LOSSES[loss].happens(seeded_broker.fixture)
    seeded_broker.fixture.commit()
    before = seeded_broker.all()
    if op is Op.TXN_ROLLBACK:  # letting go of what is one's own needs no right
        assert peer.ask(m.RollbackTransaction(full.transaction_id)) == m.TransactionState(full.transaction_id)
    elif op in ENDS:
        for begun in (full, empty):
            assert said(peer, ENDS[op](begun.transaction_id)) == LOSSES[loss].text
        assert seeded_broker.all() == before
    elif row.need is Need.NOTHING:
        assert said(peer, row.request(seeded_broker, "mine")) not in DENIALS
        assert seeded_broker.all() == before
    else:
        assert said(peer, row.request(seeded_broker, "mine")) == LOSSES[loss].text
        assert seeded_broker.all() == before


def test_a_run_of_produces_is_denied_one_by_one() -> None:
    seeded_broker = SeededBroker()
    peer = seeded_broker.peer("second")
    LOSSES["disabled"].happens(seeded_broker.fixture)
    seeded_broker.fixture.commit()
    before = seeded_broker.all()
    assert peer.all(*[m.Produce("mine", None, FITS)] * 5) == [m.Failure(DISABLED)] * 5
    assert seeded_broker.all() == before


def test_a_fetch_that_waits_ends_when_the_right_is_lost() -> None:
    seeded_broker = SeededBroker()
    fixture = seeded_broker.fixture
    fixture.broker.topics.change(ADMINISTRATOR, DEFAULT_SCOPE, "mine", TopicSettings(fetch_wait_seconds=5))
    fixture.commit()
    peer = seeded_broker.peer("second")
    peer.feed(m.Fetch("mine", 1, 0, 10))
    assert peer.raw() == b""
    LOSSES["disabled"].happens(fixture)
    fixture.broker.produce.append(ADMINISTRATOR, DEFAULT_SCOPE, "mine", 1, [b"not for you"])
    fixture.commit()
    assert peer.replies() == [m.Failure(DISABLED)]


def test_who_gets_the_name_of_a_deleted_user_is_somebody_else() -> None:
    seeded_broker = SeededBroker()
    fixture = seeded_broker.fixture
    old = seeded_broker.peer("second")
    admin = seeded_broker.peer("admin")
    assert admin.ask(m.DeleteUser("second")) == m.Done(message="second")
    fixture.pass_time(1)
    assert isinstance(admin.ask(m.CreateUser("second", "another word", "", ["admin"])), m.UserInfo)
    assert said(old, m.Fetch("mine", 0, 0, 10)) == DISABLED
    assert said(old, m.ChangePassword("second", "mine again", "another word", [])) == DISABLED
    assert old.ask(m.WhoAmI()) == m.CurrentUser(False, "", [], [])
    new = Peer(fixture)
    assert new.ask(m.Authenticate("second", "another word")) == m.AuthResult(True)
    assert isinstance(new.ask(m.Fetch("mine", 0, 0, 10)), m.Fetched)
    assert isinstance(old.ask(m.Authenticate("second", "another word")), m.AuthResult)
    assert isinstance(old.ask(m.Fetch("mine", 0, 0, 10)), m.Fetched)


@pytest.mark.parametrize("loss", ["disabled", "deleted"])
def test_whoami_of_one_who_is_nobody_any_more(loss: str) -> None:
    seeded_broker = SeededBroker()
    peer = seeded_broker.peer("second")
    assert peer.ask(m.WhoAmI()) == m.CurrentUser(True, "second", ["admin"], ["read", "write", "admin"])
    LOSSES[loss].happens(seeded_broker.fixture)
    assert peer.ask(m.WhoAmI()) == m.CurrentUser(False, "", [], [])
    assert Peer(seeded_broker.fixture).ask(m.WhoAmI()) == m.CurrentUser(False, "", [], [])


def test_work_under_way_is_not_finished_for_one_who_lost_the_right() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    for request in (
        m.RegisterSchema("fresh", "json", SCHEMA),
        m.CreateUser("new", "word", "", ["admin"]),
        m.ChangePassword("guest", "word", "", []),
    ):
        seeded_broker = SeededBroker()
        peer, fixture = seeded_broker.peer("second"), seeded_broker.fixture
        # Everything that takes its time now waits here.
        for bounded in (fixture.broker.users._executor, fixture.broker.schemas._executor):
            bounded._executor = later(calls)
        peer.feed(request)
        assert peer.raw() == b"" and len(calls) == 1
        LOSSES["disabled"].happens(fixture)
        fixture.commit()
        before = seeded_broker.all()
        work, done = calls.pop()
        work()
        done()
        fixture.commit()
        assert peer.replies() == [m.Failure(DISABLED)], request
        assert seeded_broker.all() == before


# -- public topics


def test_public_topics_are_for_those_who_may_and_nothing_else_is() -> None:
    seeded_broker = SeededBroker(users=UserPolicy(allow_anonymous=True))
    fixture = seeded_broker.fixture
    fixture.broker.users.set_acl(ADMINISTRATOR, DEFAULT_SCOPE, Acl("mine", True))
    fixture.commit()
    nobody = Peer(fixture)
    assert isinstance(nobody.ask(m.Fetch("mine", 0, 0, 10)), m.Fetched)
    assert isinstance(nobody.ask(m.Produce("mine", None, b"v")), m.RecordMetadata)
    assert nobody.ask(m.ListTopics()) == m.TopicList(["mine", "mine.dlq"])
    before = seeded_broker.all()
    for op, row in TABLE.items():
        if row.need is Need.ADMIN:
            assert said(nobody, row.request(seeded_broker, "mine")) == LOG_IN, op.name
        if row.topic:
            assert said(nobody, row.request(seeded_broker, "secret")) == LOG_IN, op.name
    assert seeded_broker.all() == before


# -- logging in


def entered(fixture: BrokerFixture, name: str) -> Peer:
    peer = Peer(fixture)
    assert peer.ask(m.Authenticate(name, WORD)) == m.AuthResult(True)
    return peer


def test_connections_that_have_logged_in_leave_some_for_other_tenants() -> None:
    fixture = SeededBroker(limits=Limits(connections=4)).fixture
    inside = [entered(fixture, "clerk"), entered(fixture, "clerk")]
    assert "its limit" in said(Peer(fixture), m.Authenticate("clerk", WORD))
    fixture.broker.rate_limits.enter("another tenant")
    inside[0].ask(m.Authenticate("clerk", WORD))  # once more changes nothing
    inside[0].session.lost()
    entered(fixture, "clerk")


def test_a_login_makes_the_user_of_the_connection() -> None:
    seeded_broker = SeededBroker()
    peer = Peer(seeded_broker.fixture)
    assert said(peer, m.Fetch("mine", 0, 0, 10)) == LOG_IN
    assert peer.ask(m.Authenticate("consumer", WORD)) == m.AuthResult(True)
    assert isinstance(peer.session, FlyMqSession) and peer.session._context.identity == seeded_broker.identity(
        "consumer"
    )
    assert isinstance(peer.ask(m.Fetch("mine", 0, 0, 10)), m.Fetched)
    assert said(peer, m.Produce("mine", None, FITS)) == UNAUTHORIZED
    assert peer.ask(m.WhoAmI()) == m.CurrentUser(True, "consumer", ["consumer"], ["read"])


def test_requests_behind_a_login_wait_for_it() -> None:
    seeded_broker = SeededBroker()
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    seeded_broker.fixture.broker.users._executor._executor = later(calls)
    peer = Peer(seeded_broker.fixture)
    peer.feed(m.Authenticate("consumer", WORD), m.Fetch("mine", 0, 0, 10), m.Produce("mine", None, FITS))
    assert peer.raw() == b""
    work, done = calls.pop()
    work()
    done()
    seeded_broker.fixture.commit()  # a refusal leaves behind its event in the audit log
    login, fetched, produced = peer.replies()
    assert login == m.AuthResult(True)
    assert isinstance(fetched, m.Fetched)
    assert produced == m.Failure(UNAUTHORIZED)


SUCCESS = {
    m.AuthStyle.BOTH: "01 00 00 00 00 00 00 00 00",
    # success, error, user, roles
    m.AuthStyle.SPEC: "01 00 00 00 05 63 6C 65 72 6B 00 00 00 01 00 05 63 6C 65 72 6B",
    # success, user, roles with short lengths, error
    m.AuthStyle.ORIGINAL: "01 00 05 63 6C 65 72 6B 00 00 00 01 05 63 6C 65 72 6B 00 00",
}
REASON = b"invalid username or password"
FAILURE = {
    # the reason, no user, as many roles as the text behind has bytes, which begins with the length of the first one
    m.AuthStyle.BOTH: b"\0\0\x1c" + REASON + bytes(5) + b"\x1e\t " + REASON.ljust(0x0920) + bytes(2 * 29),
    m.AuthStyle.SPEC: b"\0\0\x1c" + REASON + bytes(6),
    m.AuthStyle.ORIGINAL: bytes(7) + b"\0\x1c" + REASON,
}


@pytest.mark.parametrize("style", m.AuthStyle)
def test_the_bytes_of_an_answer_in_every_style(style: m.AuthStyle) -> None:
    seeded_broker = SeededBroker()
    peer = Peer(seeded_broker.fixture, settings=FlyMqSettings(style))
    peer.feed(m.Authenticate("clerk", WORD))
    (frame,) = peer.frames()
    assert (frame.opcode, frame.payload) == (0x71, bytes.fromhex(SUCCESS[style]))
    peer.feed(m.Authenticate("clerk", "wrong"))
    (frame,) = peer.frames()
    assert (frame.opcode, frame.payload) == (0x71, FAILURE[style])


def test_a_login_that_fails_leaves_things_as_they_are() -> None:
    seeded_broker = SeededBroker()
    peer = entered(seeded_broker.fixture, "consumer")
    assert peer.ask(m.Authenticate("admin", "wrong")) == m.AuthResult(False, "invalid username or password")
    assert isinstance(peer.ask(m.Fetch("mine", 0, 0, 10)), m.Fetched)
    assert said(peer, m.Produce("mine", None, FITS)) == UNAUTHORIZED


def test_another_login_makes_another_user() -> None:
    seeded_broker = SeededBroker()
    peer = entered(seeded_broker.fixture, "admin")
    begun = peer.ask(m.BeginTransaction())
    assert isinstance(begun, m.TransactionState)
    assert peer.ask(m.Authenticate("consumer", WORD)) == m.AuthResult(True)
    assert said(peer, m.ListUsers()) == UNAUTHORIZED
    assert said(peer, m.CommitTransaction(begun.transaction_id)).startswith("transaction not found")


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("clerk", "wrong"),
        ("clerk", ""),
        ("clerk", WORD + " "),
        ("clerk", WORD.upper()),
        ("clerk", "x" * 65_535),
        ("clerk", WORD + "\0"),
        ("clerk", WORD + "x" * MAX_PASSWORD),
        ("Clerk", WORD),
        ("clerk\0", WORD),
        (" clerk", WORD),
        ("nobody", WORD),
        ("", ""),
        ("x" * 65_535, WORD),
        ("user:clerk", WORD),
        ("key:1", WORD),
        ("anonymous", WORD),
        ("admin@socket", WORD),
        ("*", WORD),
        ("../../etc/passwd", WORD),
    ],
)
def test_every_login_that_fails_is_told_the_same(name: str, word: str) -> None:
    seeded_broker = SeededBroker()
    peer = Peer(seeded_broker.fixture)
    assert peer.ask(m.Authenticate(name, word)) == m.AuthResult(False, "invalid username or password")
    assert said(peer, m.ListTopics()) == LOG_IN


def test_a_disabled_user_is_told_so_with_the_right_password_only() -> None:
    seeded_broker = SeededBroker()
    LOSSES["disabled"].happens(seeded_broker.fixture)
    peer = Peer(seeded_broker.fixture)
    assert peer.ask(m.Authenticate("second", WORD)) == m.AuthResult(False, DISABLED)
    assert peer.ask(m.Authenticate("second", "wrong")) == m.AuthResult(False, "invalid username or password")
    assert said(peer, m.ListTopics()) == LOG_IN


def test_a_name_for_which_a_host_fails_too_often_is_locked_out_there_for_a_while() -> None:
    seeded_broker = SeededBroker(lockout=LockoutPolicy(3, 60))
    fixture = seeded_broker.fixture
    inside = entered(fixture, "clerk")
    peer = Peer(fixture)
    locked = m.AuthResult(False, "too many failed attempts; try again later")
    for _ in range(3):
        assert peer.ask(m.Authenticate("clerk", "wrong")) == m.AuthResult(False, "invalid username or password")
    assert peer.ask(m.Authenticate("clerk", WORD)) == locked
    assert Peer(fixture, port=1).ask(m.Authenticate("clerk", WORD)) == locked  # another connection of the same host
    assert Peer(fixture, port=1).ask(m.Authenticate("admin", WORD)) == m.AuthResult(True)  # another name
    assert isinstance(inside.ask(m.Fetch("mine", 0, 0, 10)), m.Fetched)  # who is in stays in
    assert inside.ask(m.Authenticate("clerk", WORD)) == locked
    assert isinstance(inside.ask(m.Fetch("mine", 0, 0, 10)), m.Fetched)
    assert said(inside, m.ChangePassword("clerk", "new", WORD, [])) == locked.error
    fixture.pass_time(61)
    assert peer.ask(m.Authenticate("clerk", WORD)) == m.AuthResult(True)


def test_guessing_by_changing_a_password_locks_out_too() -> None:
    seeded_broker = SeededBroker(lockout=LockoutPolicy(3, 60))
    peer = seeded_broker.peer("clerk")
    for _ in range(3):
        assert said(peer, m.ChangePassword("clerk", "new", "wrong", [])) == "invalid current password"
    assert said(peer, m.ChangePassword("clerk", "new", WORD, [])) == "too many failed attempts; try again later"


def test_a_changed_password_is_the_only_one() -> None:
    seeded_broker = SeededBroker()
    peer = entered(seeded_broker.fixture, "clerk")
    assert said(peer, m.ChangePassword("clerk", "", WORD, [])).startswith("A password has")
    assert said(peer, m.ChangePassword("clerk", "x" * 2000, WORD, [])).startswith("A password has")
    assert said(peer, m.ChangePassword("admin", "new", WORD, [])) == UNAUTHORIZED
    assert said(peer, m.ChangePassword("clerk", "new", "wrong", [])) == "invalid current password"
    assert peer.ask(m.ChangePassword("clerk", "new", WORD, [])) == m.Done(message="clerk")
    outside = Peer(seeded_broker.fixture)
    assert outside.ask(m.Authenticate("clerk", WORD)) == m.AuthResult(False, "invalid username or password")
    assert outside.ask(m.Authenticate("clerk", "new")) == m.AuthResult(True)
    seeded_broker.fixture.restart()
    outside = Peer(seeded_broker.fixture)
    assert outside.ask(m.Authenticate("clerk", WORD)) == m.AuthResult(False, "invalid username or password")
    assert outside.ask(m.Authenticate("clerk", "new")) == m.AuthResult(True)


def test_a_password_is_in_no_reply_and_in_no_audit_event() -> None:
    seeded_broker = SeededBroker()
    admin = entered(seeded_broker.fixture, "admin")
    admin.ask(m.CreateUser("new", "s3cret-one", "", []))
    admin.ask(m.ChangePassword("new", "s3cret-two", "s3cret-one", []))
    admin.ask(m.Authenticate("new", "s3cret-bad"))
    admin.all(m.ListUsers(), m.GetUser("new"), AUDIT, m.AuditExportRequest(AUDIT, "csv"))
    told = b"".join(admin.sent)
    assert b"s3cret" not in told and b"argon2" not in told
    assert b"password" in told  # of the audit log: that it was changed


def test_the_last_administrator_stays() -> None:
    seeded_broker = SeededBroker()
    admin = seeded_broker.peer("admin")
    assert admin.ask(m.DeleteUser("second")) == m.Done(message="second")
    assert "cannot delete your own account" in said(admin, m.DeleteUser("admin"))
    assert "last administrator" in said(admin, m.UpdateUser("admin", "", "", ["guest"], True))
    assert "last administrator" in said(admin, m.UpdateUser("admin", "", "", ["admin"], False))
    assert isinstance(admin.ask(m.ListUsers()), m.UserList)


def test_with_security_off_nothing_of_this_ends_a_connection() -> None:
    """The original dies of AUTH and of everything about users if it has none."""
    fixture = BrokerFixture(access=AccessPolicy(False, [ADMINISTRATION]))
    peer = Peer(fixture)
    for op, row in TABLE.items():
        if Op.AUTH <= op <= Op.ROLE_DELETE and not row.topic:
            peer.ask(row.request(SeededBroker, "mine"))  # type: ignore[arg-type]
            assert not peer.closed
