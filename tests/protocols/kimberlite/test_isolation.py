"""No tenant can see, change or infer anything of another.

For every kind of request, and with every kind of proof, what somebody of one tenant is told is the same, byte for byte,
whether the other tenant has something, somebody else has it, or nobody. That these tests would find a hole is tested
too: with bugs planted, they fail.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import Any, Final, NamedTuple

import pytest
from tests.core.test_tokens import SHARED, signed
from tests.core.world import START
from tests.protocols.kimberlite.asking import ABOUT, Target
from tests.protocols.kimberlite.peer import Peer
from tests.protocols.kimberlite.sql_world import SqlWorld
from tests.protocols.kimberlite.test_session import key

from penstock.core import keys, lookup
from penstock.core.access import ADMINISTRATION, ADMINISTRATOR, Access
from penstock.core.audit import Audit
from penstock.core.audit_event import AuditPolicy
from penstock.core.keys import Keys
from penstock.core.lockout import LockOut
from penstock.core.names import DEFAULT_SCOPE, Scope
from penstock.core.queries import Queries
from penstock.core.query_desk import QueryDesk
from penstock.core.tenants import Tenants
from penstock.core.token import TokenPolicy
from penstock.log.engine import partition_id
from penstock.protocols.kimberlite import messages as m
from penstock.protocols.kimberlite.call import Call, KimberliteSettings
from penstock.protocols.kimberlite.generations import REQUESTS
from penstock.protocols.kimberlite.messages import DataClass, ErrorCode
from penstock.protocols.kimberlite.subscriptions import Subscriptions, subscription_id

OWN, OTHER, THIRD = 1, 2, 3
SECRET = b'{"who": "a secret"}'
SETTINGS = KimberliteSettings(assume="5b")  # no request is put off as ambiguous
NOT_YOURS = m.ErrorResponse(ErrorCode.AUTHENTICATION_FAILED, "the token is not for this tenant")
POSITION = 100  # of the log, before anybody asks
MISSING = Target(99, 77, "absent", "psk_9_" + "0" * 32, "9", 5)

CREDENTIALS: Final = ("key of an administrator", "token of an administrator", "token of a user", "token of an auditor")


SQL: Final = (m.Query, m.QueryAt, m.ListTables, m.DescribeTable, m.ListIndexes)


CREATING: Final = (m.Query, m.CreateStream)  # what is not there at first is there then


class Heard(NamedTuple):
    """What somebody gets to know by asking: what was sent, and how far the log has moved on."""

    data: bytes
    replies: list[m.Message]
    moved: int


class Scene:
    """Tenant 1 with a stream, and `owner` with something of everything; if `gone`, it is deleted again. The numbers of
    streams and keys, and the position of the log, are the same whoever the owner is."""

    def __init__(self, owner: int, *, gone: bool = False, sql: bool = True) -> None:
        self.world = SqlWorld(
            access=Access(True, [ADMINISTRATION]),
            audit=AuditPolicy(enabled=True),
            tokens=TokenPolicy((SHARED,)),
            lockout=LockOut(0),
        )
        self.steps: list[str] | None = None
        roles = (None, "Admin", "User", "Auditor")
        self.tokens = {
            name: key(self.world, OWN) if role is None else signed(tenant_id=OWN, roles=[role])
            for name, role in zip(CREDENTIALS, roles, strict=True)
        }
        self.key = key(self.world, owner)
        first = self.peer(CREDENTIALS[0])
        self.own = first.create("mine")
        first.append(self.own, b'{"who": "me"}')
        self.stream, subscription = self._furnish(owner, sql=sql)
        if gone:
            self.world.broker.tenants.delete(ADMINISTRATOR, str(owner))
        self._fill_up()
        self.target = Target(OTHER, self.stream, "secret", self.key, "2", subscription, position=20)

    def _furnish(self, owner: int, *, sql: bool) -> tuple[int, int]:
        self.owner = Peer(self.world, tenant=owner, token=self.key, settings=SETTINGS)
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
        broker = self.world.broker
        broker.create_topic(ADMINISTRATOR, DEFAULT_SCOPE, "filling", 1)
        self.world.commit()
        while broker.position < POSITION:
            broker.produce(ADMINISTRATOR, DEFAULT_SCOPE, "filling", 0, [b""])
            self.world.commit()
        assert broker.position == POSITION

    def peer(self, credential: str) -> Peer:
        return Peer(self.world, tenant=OWN, token=self.tokens[credential], settings=SETTINGS)

    def ask(self, credential: str, request: m.Message, tenant: int) -> Heard:
        """On a connection of its own."""
        peer = self.peer(credential)
        frame, before = peer.frame(request, tenant), self.world.broker.position
        with self.watched():
            peer.feed(frame)
            self.world.commit()
        data = peer.raw()
        peer.wire.feed(data)
        replies = list(iter(peer.wire.next, None))
        assert not peer.closed and data
        peer.session.lost()
        self.world.commit()
        return Heard(data, [reply.payload for reply in replies if reply is not None], self.world.broker.position - before)

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

        sys.setprofile(step)
        try:
            yield
        finally:
            sys.setprofile(None)

    def others(self) -> object:
        """Everything of the other tenant that a request could have changed."""
        state = self.world.broker._ledger.state
        topics = [topic for topic in state.topics_by_id.values() if topic.scope.tenant == str(OTHER)]
        ends = [self.world.engine.next_offset(partition_id(topic.id, 0)) for topic in topics]
        keys = [one for one in state.keys.values() if one.tenant == str(OTHER)]
        groups = {scope: repr(found) for scope, found in state.groups.items() if scope.tenant == str(OTHER)}
        return topics, ends, keys, groups, str(OTHER) in state.registered

    def close(self) -> None:
        self.world.close()


@pytest.fixture(autouse=True)
def no_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is otherwise drawn by lot is the same in all worlds: keys differ by their numbers."""
    monkeypatch.setattr(keys, "secrets", SimpleNamespace(token_bytes=bytes))


@contextmanager
def scenes(kind: type[m.Message]) -> Iterator[list[Scene]]:
    """What is asked for is the other tenant's; a third one's; nobody's."""
    sql = kind in SQL
    opened = [Scene(OTHER, sql=sql), Scene(THIRD, sql=sql), Scene(THIRD, gone=True, sql=sql)]
    try:
        yield opened
    finally:
        for scene in opened:
            scene.close()


def check(kind: type[m.Message], *credentials: str) -> None:
    """That a kind of request tells and changes nothing. Raises AssertionError."""
    for some in [[one] for one in credentials] if kind in CREATING else [credentials]:
        with scenes(kind) as opened:
            for credential, tenant in itertools.product(some, (OTHER, OWN)):
                _compare(opened, kind, credential, tenant)


def _compare(opened: list[Scene], kind: type[m.Message], credential: str, tenant: int) -> None:
    theirs = opened[0]
    own, before = theirs.tokens[credential], theirs.others()
    for request in ABOUT[kind](theirs.target._replace(token=own)):
        told, *others = [scene.ask(credential, request, tenant) for scene in opened]
        assert others == [told, told], request
        assert b"a secret" not in told.data and b"ledger" not in told.data
        assert theirs.others() == before, request
        if tenant == OTHER and (not isinstance(request, m.Handshake) or request.auth_token == own):
            assert told.replies == [NOT_YOURS] and told.moved == 0


@pytest.mark.parametrize("kind", ABOUT, ids=lambda kind: kind.__name__)
def test_nothing_of_another_tenant_is_told_or_changed(kind: type[m.Message]) -> None:
    check(kind, *CREDENTIALS)


def test_every_kind_of_request_is_tried() -> None:
    assert set(ABOUT) == {shape.make for shape in REQUESTS}


@pytest.mark.parametrize("kind", ABOUT, ids=lambda kind: kind.__name__)
def test_what_is_there_takes_no_longer_to_refuse(kind: type[m.Message]) -> None:
    """Clocks are no good for a test; the same functions are called, in the same order."""
    with scenes(kind) as opened:
        for request in ABOUT[kind](opened[0].target):
            for scene in opened:
                scene.steps = []
                scene.ask(CREDENTIALS[0], request, OWN)
            steps = [scene.steps for scene in opened]
            assert steps[0] and steps[1:] == [steps[0]] * 2, request
