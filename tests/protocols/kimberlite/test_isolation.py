"""No tenant can see, change or infer anything of another: for every kind of request, what one tenant is told is the
same whether or not the other has anything; and planted bugs are found."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.core.world import World
from tests.protocols.kimberlite.asking import ABOUT, Target
from tests.protocols.kimberlite.peer import Peer
from tests.protocols.kimberlite.test_operations import queries
from tests.protocols.kimberlite.test_session import key, secured

from penstock.core.access import ADMINISTRATOR, Access
from penstock.core.broker import Broker
from penstock.core.errors import StreamNotFound
from penstock.core.names import Scope
from penstock.core.query import Rows
from penstock.log.engine import partition_id
from penstock.protocols.kimberlite import messages as m
from penstock.protocols.kimberlite.call import Call, KimberliteSettings
from penstock.protocols.kimberlite.messages import DataClass, ErrorCode
from penstock.protocols.kimberlite.operations.table import OPERATIONS

OWN, OTHER = 1, 2
SECRET = b"a secret of the other tenant"
SETTINGS = KimberliteSettings(assume="5b")  # no request is put off as ambiguous


class Scene:
    """Tenant 1 with a stream; with `inhabited`, tenant 2 as well, with something of everything."""

    def __init__(self, *, inhabited: bool) -> None:
        self.world = secured()
        self.token = key(self.world, OWN)  # of an administrator
        other_key = key(self.world, OTHER)  # in both scenes, so that numbers are the same
        self.own = self.peer(OWN, self.token).create("mine")
        if not inhabited:
            (_, second) = self.world.broker.keys.list(ADMINISTRATOR)
            self.world.broker.keys.revoke(ADMINISTRATOR, second.id)
            self.world.commit()
            self.target = Target(OTHER, self.own + 1)
            return
        other = self.peer(OTHER, other_key)
        stream = other.create("secret", DataClass.PHI)
        other.append(stream, SECRET, SECRET)
        subscribed = other.ask(m.Subscribe(stream, 0, 1, "group"))
        assert isinstance(subscribed, m.SubscribeResponse)
        self.target = Target(OTHER, stream, key=other_key, key_id="2", subscription=subscribed.subscription_id)
        assert stream == self.own + 1

    def peer(self, tenant: int, token: str) -> Peer:
        return Peer(self.world, tenant=tenant, token=token, settings=SETTINGS)

    def others(self) -> object:
        """Everything of the other tenant that a request could have changed, but for its audit log."""
        state = self.world.broker._ledger.state
        topics = [topic for topic in state.topics_by_id.values() if topic.scope.tenant == str(OTHER)]
        topics = [topic for topic in topics if not topic.name.startswith("__")]
        ends = [self.world.engine.next_offset(partition_id(topic.id, 0)) for topic in topics]
        keys = [one for one in state.keys.values() if one.tenant == str(OTHER)]
        return topics, ends, keys, str(OTHER) in state.registered


def told(scene: Scene, kind: type[m.Message], target: Target, tenant: int) -> list[m.Message]:
    """What tenant 1's administrator hears, asking in the name of `tenant`."""
    replies: list[m.Message] = []
    for request in ABOUT[kind](target):
        queries(scene.world, Rows(["a"], [[1]]))
        peer = scene.peer(OWN, scene.token)
        peer.feed(peer.frame(request, tenant))
        scene.world.commit()
        replies += [response.payload for response in peer.responses()] + peer.pushed
        scopes = [scope for scope, *_ in scene.world.broker.queries.asked]  # type: ignore[attr-defined]
        assert set(scopes) <= {Scope(str(OWN), "default")}
        peer.session.lost()
    return replies


def check(kind: type[m.Message]) -> None:
    """That a kind of request tells and changes nothing. Raises AssertionError."""
    inhabited, empty = Scene(inhabited=True), Scene(inhabited=False)
    before = inhabited.others()
    for tenant in (OTHER, OWN):
        # The number of a tenant that is there, and what is in it, are as good as any others.
        replies = told(inhabited, kind, inhabited.target, tenant)
        assert _plain(replies) == _plain(told(empty, kind, inhabited.target, tenant))
        assert replies and SECRET not in repr(replies).encode()
        if tenant == OTHER and kind is not m.Handshake:
            refusal = m.ErrorResponse(ErrorCode.AUTHENTICATION_FAILED, "the token is not for this tenant")
            assert set(map(str, replies)) == {str(refusal)}
        assert inhabited.others() == before


def _plain(replies: list[m.Message]) -> list[str]:
    """Without what is different every time, for whoever asks; and without the numbers of new streams, which are those
    of the broker's topics, in the order in which they came into being."""
    return [
        re.sub(r"(stream_id=|it is stream )\d+", r"\1N", repr(reply))
        for reply in replies
        if not isinstance(reply, m.ApiKeyRegisterResponse | m.ApiKeyRotateResponse | m.AuditQueryResponse)
        and not isinstance(reply, m.VerifyAuditChainResponse)
    ]


@pytest.mark.parametrize("kind", ABOUT, ids=lambda kind: kind.__name__)
def test_nothing_of_another_tenant_is_told_or_changed(kind: type[m.Message]) -> None:
    check(kind)


def test_every_kind_of_request_is_tried() -> None:
    assert set(ABOUT) | {m.Ambiguous} == set(OPERATIONS)


def test_the_audit_log_of_one_tenant_has_nothing_of_the_other() -> None:
    scene = Scene(inhabited=True)
    found = scene.peer(OWN, scene.token).ask(m.AuditQuery(limit=1000))
    assert isinstance(found, m.AuditQueryResponse) and len(found.events) > 2
    assert "secret" not in repr(found)


# -- bugs that must be found


def _no_tenant_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Call, "check_tenant", lambda *_: None)


def _streams_of_all_tenants(patch: pytest.MonkeyPatch) -> None:
    def stream(broker: Any, _identity: Any, _scope: Any, number: int) -> Any:
        topic = broker._ledger.state.topics_by_id.get(number)
        if topic is None:
            raise StreamNotFound(number)
        return topic, 0

    patch.setattr(Broker, "stream", stream)


def _identities_without_a_tenant(patch: pytest.MonkeyPatch) -> None:
    _no_tenant_check(patch)
    patch.setattr(Access, "allows", lambda *_: True)
    patch.setattr(Access, "require", lambda *_: None)
    patch.setattr(Access, "require_any", lambda *_: None)
    patch.setattr(Access, "require_member", lambda *_: None)


@pytest.mark.parametrize("kind", [kind for kind in ABOUT if kind is not m.Handshake], ids=lambda kind: kind.__name__)
def test_without_the_sessions_own_check_every_kind_is_found_out(
    kind: type[m.Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_tenant_check(monkeypatch)
    with pytest.raises(AssertionError):
        check(kind)


@pytest.mark.parametrize("kind", [m.ReadEvents, m.AppendEvents, m.StreamInfo, m.Subscribe])
def test_streams_that_are_found_across_tenants_are_found_out(
    kind: type[m.Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    _streams_of_all_tenants(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        check(kind)


@pytest.mark.parametrize(
    "kind",
    [m.ReadEvents, m.AppendEvents, m.TenantDelete, m.TenantGet, m.ApiKeyList, m.ApiKeyRevoke, m.ApiKeyRotate, m.Query],
)
def test_access_that_forgets_tenants_is_found_out(kind: type[m.Message], monkeypatch: pytest.MonkeyPatch) -> None:
    _identities_without_a_tenant(monkeypatch)
    with pytest.raises(AssertionError):
        check(kind)


def test_worlds_differ_only_in_the_other_tenant() -> None:
    """Else the comparison would prove nothing."""
    inhabited, empty = Scene(inhabited=True), Scene(inhabited=False)
    assert inhabited.own == empty.own and inhabited.others() != empty.others()
    owner = Peer(inhabited.world, tenant=OTHER, token=inhabited.target.key, settings=SETTINGS)
    assert owner.read(inhabited.target.stream).events == [SECRET, SECRET]
    assert isinstance(inhabited.world, World)
