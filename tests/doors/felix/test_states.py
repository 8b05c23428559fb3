"""Every state of a stream with every kind of request: the first frame decides on the dialect, `auth` is said once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.felix.peer import NAMES, Peer, Stream, auth, b64, batch, frame, original, publish, publish_batch
from tests.doors.permissions import without

from penstock.broker.names import Scope
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy, Permission
from penstock.doors.felix.handlers.table import HANDLERS
from penstock.doors.felix.produce_batch import ProduceBatch
from penstock.doors.felix.request_context import FelixSettings
from penstock.doors.felix.states import FIRST_FRAME, TABLE, Action, Input, State
from penstock.wire.felix import messages as m

CACHE = {"tenant_id": "t1", "namespace": "default", "cache": "c", "key": "k", "request_id": 1}
INPUTS: dict[str, tuple[Input, Any]] = {
    "auth": (Input.AUTH, auth()),
    "publish": (Input.REQUEST, publish(b"x", 1)),
    "publish_batch": (Input.REQUEST, publish_batch([b"x"], 1)),
    "binary": (Input.REQUEST, batch(b"x")),
    "subscribe": (Input.REQUEST, {"type": "subscribe", **NAMES}),
    "cache_put": (Input.REQUEST, {"type": "cache_put", **CACHE, "value": b64(b"v"), "ttl_ms": None}),
    "cache_get": (Input.REQUEST, {"type": "cache_get", **CACHE}),
    "unreadable": (Input.REQUEST, frame(b"{")),
}


def stream_in(state: State, *, require_auth: bool = False) -> Stream:
    peer = Peer(BrokerFixture(), FelixSettings(require_auth=require_auth))
    if state is State.AUTHENTICATED:
        return original(peer)
    stream = peer.stream()
    if state is State.DOCUMENT:
        stream.all(frame(b"{"))
    if state is State.ORIGINAL:
        context(stream).state = state
    assert context(stream).state is state
    return stream


def context(stream: Stream) -> Any:
    return stream.session._context  # type: ignore[attr-defined]


def test_the_tables_have_every_state_and_every_input() -> None:
    assert FIRST_FRAME.keys() == set(Input)
    assert TABLE.keys() == set(State) - {State.NEW}, "a request is executed after its frame was read"
    assert all(row.keys() == set(Input) for row in TABLE.values())


@pytest.mark.parametrize("name", INPUTS)
def test_the_first_frame_decides_on_the_dialect(name: str) -> None:
    kind, request = INPUTS[name]
    stream = stream_in(State.NEW)
    stream.all(request)
    following = State.AUTHENTICATED if kind is Input.AUTH else FIRST_FRAME[kind]
    assert context(stream).state is following
    assert context(stream).original is (kind is Input.AUTH)


@pytest.mark.parametrize("require_auth", [False, True])
@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("state", [State.DOCUMENT, State.AUTHENTICATED])
def test_every_request_in_every_state(state: State, name: str, require_auth: bool) -> None:
    kind, request = INPUTS[name]
    stream = stream_in(state, require_auth=require_auth)
    replies = stream.all(request)
    action = TABLE[state][kind]
    ends = action in (Action.REFUSE_LATE, Action.REFUSE_AGAIN)
    if name != "unreadable":
        ends = ends or (action is Action.SERVE_UNLESS_REQUIRED and require_auth)
    assert stream.finished is ends
    text = {
        Action.REFUSE_LATE: "auth must be the first frame of a stream",
        Action.REFUSE_AGAIN: "auth already established",
    }.get(action, "auth required")
    assert (text in str(replies)) is ends
    assert context(stream).state is state


EXAMPLES: dict[type, Any] = {
    ProduceBatch: publish(b"x", 1),
    m.Subscribe: {"type": "subscribe", **NAMES},
    m.StreamShards: {"type": "stream_shards", **NAMES, "request_id": 1},
    m.CachePut: {"type": "cache_put", **CACHE, "value": b64(b"v"), "ttl_ms": None},
    m.CacheGet: {"type": "cache_get", **CACHE},
    m.CacheDelete: {"type": "cache_delete", **CACHE},
    m.CacheCas: {"type": "cache_cas", **CACHE, "expected": None, "value": b64(b"v"), "ttl_ms": None},
    m.CacheIncrement: {"type": "cache_increment", **CACHE, "by": 1, "ttl_ms": None},
    m.CounterAdd: {"type": "counter_add", **CACHE, "delta": 1, "request_id": 1},
    m.CounterGet: {"type": "counter_get", **CACHE, "request_id": 1},
}


def test_only_auth_needs_no_permission() -> None:
    assert {kind for kind, handler in HANDLERS.items() if handler.permission is None} == {m.Auth}
    assert EXAMPLES.keys() == HANDLERS.keys() - {m.Auth}


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_a_request_is_denied_without_its_permission(kind: type) -> None:
    fixture = BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION]))
    fixture.broker.topics.create(ADMINISTRATOR, Scope("t1", "default"), "orders", 1)
    peer = Peer(fixture, identity=ADMINISTRATOR)
    permission = HANDLERS[kind].permission
    assert isinstance(permission, Permission)
    with without(permission):
        assert "unauthorized" in str(peer.stream().all(EXAMPLES[kind]))
    assert "unauthorized" not in str(peer.stream().all(EXAMPLES[kind]))
