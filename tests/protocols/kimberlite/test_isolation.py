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
from penstock.core.names import Scope
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
MISSING = Target(99, 77, "absent", "psk_9_" + "0" * 32, "9", 5)

CREDENTIALS: Final = ("key of an administrator", "token of an administrator", "token of a user", "token of an auditor")


class Heard(NamedTuple):
    """What somebody gets to know by asking: what was sent, and how far the log has moved on."""

    data: bytes
    replies: list[m.Message]
    moved: int


class Scene:
    """Tenant 1 with a stream, and `owner` with something of everything. Without an owner there is only the key that it
    would have had, and that does not count any more."""

    def __init__(self, owner: int | None) -> None:
        self.world = SqlWorld(
            access=Access(True, [ADMINISTRATION]),
            audit=AuditPolicy(enabled=True),
            tokens=TokenPolicy((SHARED,)),
        )
        self.tokens = dict(
            zip(
                CREDENTIALS,
                (
                    key(self.world, OWN),
                    signed(tenant_id=OWN, roles=["Admin"]),
                    signed(tenant_id=OWN, roles=["User"]),
                    signed(tenant_id=OWN, roles=["Auditor"]),
                ),
                strict=True,
            )
        )
        self.key = key(self.world, owner or OTHER)
        first = self.peer(CREDENTIALS[0])
        self.own = first.create("mine")
        first.append(self.own, b'{"who": "me"}')
        self.stream = self.own + 1
        self.subscription = subscription_id(OTHER, self.stream)
        if owner is None:
            (_, second) = self.world.broker.keys.list(ADMINISTRATOR)
            self.world.broker.keys.revoke(ADMINISTRATOR, second.id)
            self.world.commit()
        else:
            self._furnish(owner)
        position = self.world.broker.position
        self.target = Target(OTHER, self.stream, "secret", self.key, "2", self.subscription, position)

    def _furnish(self, owner: int) -> None:
        self.owner = Peer(self.world, tenant=owner, token=self.key, settings=SETTINGS)
        assert self.owner.create("secret") == self.stream
        self.owner.append(self.stream, SECRET, SECRET)
        subscribed = self.owner.ask(m.Subscribe(self.stream, 0, 1, "group"))
        assert isinstance(subscribed, m.SubscribeResponse)
        assert owner != OTHER or subscribed.subscription_id == self.subscription
        made = self.owner.ask(m.Query("CREATE TABLE ledger (who VARCHAR PRIMARY KEY)", []))
        assert isinstance(made, m.QueryResponse), made
        assert isinstance(self.owner.ask(m.Query("SELECT who FROM secret", [], "to see it")), m.QueryResponse)

    def peer(self, credential: str) -> Peer:
        return Peer(self.world, tenant=OWN, token=self.tokens[credential], settings=SETTINGS)

    def ask(self, credential: str, request: m.Message, tenant: int) -> Heard:
        """On a connection of its own."""
        peer = self.peer(credential)
        before = self.world.broker.position
        peer.feed(peer.frame(request, tenant))
        self.world.commit()
        data = peer.raw()
        peer.wire.feed(data)
        replies = list(iter(peer.wire.next, None))
        assert not peer.closed and data
        peer.session.lost()
        self.world.commit()
        return Heard(data, [reply.payload for reply in replies if reply is not None], self.world.broker.position - before)

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
def scenes(*owners: int | None) -> Iterator[list[Scene]]:
    opened = [Scene(owner) for owner in owners]
    try:
        yield opened
    finally:
        for scene in opened:
            scene.close()


def check(kind: type[m.Message], *credentials: str) -> None:
    """That a kind of request tells and changes nothing. Raises AssertionError."""
    with scenes(OTHER, THIRD, None) as (theirs, elsewhere, nowhere):
        before, target = theirs.others(), theirs.target
        for credential, tenant in itertools.product(credentials or CREDENTIALS, (OTHER, OWN)):
            for request in ABOUT[kind](target):
                told, same, other = (scene.ask(credential, request, tenant) for scene in (theirs, elsewhere, nowhere))
                assert told == same, request
                assert _plain(told) == _plain(other), request
                assert b"a secret" not in told.data and b"ledger" not in told.data
                if tenant == OTHER and kind is not m.Handshake:
                    assert told.replies == [NOT_YOURS] and told.moved == 0
                assert theirs.others() == before, request


def _plain(heard: Heard) -> Heard:
    return heard


@pytest.mark.parametrize("kind", ABOUT, ids=lambda kind: kind.__name__)
def test_nothing_of_another_tenant_is_told_or_changed(kind: type[m.Message]) -> None:
    check(kind)


def test_every_kind_of_request_is_tried() -> None:
    assert set(ABOUT) == {shape.make for shape in REQUESTS}
