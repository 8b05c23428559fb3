"""The handshake: every state with every frame, against the reply that the protocol prescribes, in its exact words."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.security.access import Identity
from penstock.doors.blipmq.states import TABLE, Action, Handshake, State
from penstock.wire.blipmq import codec, frames
from penstock.wire.blipmq.codec import decode_nack, encode_auth, encode_hello
from penstock.wire.blipmq.frames import Framer, FrameType

ALICE = Identity("alice", "tenant")
SESSION = "left to the session"
NOTHING = "no reply"
OK = "ACK 0"

HELLO_TWICE = (400, "HELLO already performed")
NO_HELLO = (400, "HELLO not performed")
AUTH_TWICE = (400, "already authenticated")
EARLY = (401, "unauthenticated")

Reply = str | tuple[int, str]

# Frame: the replies in NEW, GREETED and READY. HELLO and AUTH are good ones.
PRESCRIBED: dict[FrameType, tuple[Reply, Reply, Reply]] = {
    FrameType.HELLO: (OK, HELLO_TWICE, HELLO_TWICE),
    FrameType.AUTH: (NO_HELLO, OK, AUTH_TWICE),
    FrameType.PUBLISH: (EARLY, EARLY, SESSION),
    FrameType.SUBSCRIBE: (EARLY, EARLY, SESSION),
    FrameType.ACK: (EARLY, EARLY, SESSION),
    FrameType.NACK: (EARLY, EARLY, NOTHING),
    FrameType.PING: (EARLY, EARLY, SESSION),
    FrameType.PONG: (EARLY, EARLY, NOTHING),
    FrameType.POLL: (EARLY, EARLY, SESSION),
}
STATES = [State.NEW, State.GREETED, State.READY]
PAYLOADS = {FrameType.HELLO: b"\0\1", FrameType.AUTH: b"\0\4good"}
CORRELATION = 0xFEED_FACE_CAFE_BEEF


class Keys:
    """Knows one key. Remembers which ones it was asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.locked = False

    def __call__(self, key: str) -> Identity | Literal["locked"] | None:
        self.asked.append(key)
        if self.locked:
            return "locked"
        return ALICE if key == "good" else None


def handshake_in(state: State, keys: Keys | None = None) -> Handshake:
    handshake = Handshake(keys or Keys())
    if state is not State.NEW:
        send(handshake, FrameType.HELLO)
    if state is State.READY:
        send(handshake, FrameType.AUTH)
    assert handshake.state is state
    return handshake


def send(handshake: Handshake, kind: FrameType, payload: bytes | None = None) -> Reply:
    """The reply in words. Every reply has the correlation id of its frame."""
    data = handshake.step((kind, CORRELATION, PAYLOADS.get(kind, b"") if payload is None else payload))
    if data is None:
        return SESSION
    if not data:
        return NOTHING
    ((reply_kind, correlation, reply),) = Framer().feed(data)
    assert correlation == CORRELATION
    if reply_kind == frames.ACK:
        return f"ACK {codec.decode_subscription_id(reply)}"
    assert reply_kind == frames.NACK
    nack = decode_nack(reply)
    assert nack is not None
    return nack


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", PRESCRIBED)
def test_every_state_and_frame(state: State, kind: FrameType) -> None:
    handshake = handshake_in(state)
    reply = send(handshake, kind)
    assert reply == PRESCRIBED[kind][STATES.index(state)]
    after = STATES[STATES.index(state) + 1] if reply == OK else state
    assert handshake.state is after


def test_the_table_is_complete() -> None:
    """Every type that the server's framer lets through has a place in every state."""
    for state in State:
        assert set(TABLE[state]) == set(FrameType) - {FrameType.DELIVER}


@pytest.mark.parametrize("payload", [b"", b"\1", b"\0\1\0", b"\0\0\0\1"])
def test_gap_03_malformed_and_repeated_hello(payload: bytes) -> None:
    handshake = handshake_in(State.NEW)
    assert send(handshake, FrameType.HELLO, payload) == (400, "invalid HELLO payload")
    assert send(handshake, FrameType.HELLO) == OK  # it may be tried again
    assert send(handshake, FrameType.HELLO, payload) == HELLO_TWICE  # which is tested first


@pytest.mark.parametrize("version", [0, 3, 256, 0xFFFF])
def test_a_version_that_is_not_served(version: int) -> None:
    handshake = handshake_in(State.NEW)
    refused = send(handshake, FrameType.HELLO, version.to_bytes(2, "big"))
    assert refused == (426, "unsupported protocol version")
    assert handshake.version == 0
    assert send(handshake, FrameType.HELLO) == OK


@pytest.mark.parametrize("version", [1, 2])
def test_hello_settles_the_version(version: int) -> None:
    handshake = handshake_in(State.NEW)
    assert send(handshake, FrameType.HELLO, version.to_bytes(2, "big")) == OK
    assert handshake.version == version
    send(handshake, FrameType.HELLO, (3 - version).to_bytes(2, "big"))
    assert handshake.version == version


@pytest.mark.parametrize("payload", [b"", b"\0", b"\0\5good", b"\0\4good!", b"\0\3good", b"\0\1\xff"])
def test_a_malformed_auth_asks_about_no_key(payload: bytes) -> None:
    keys = Keys()
    handshake = handshake_in(State.GREETED, keys)
    assert send(handshake, FrameType.AUTH, payload) == (400, "invalid AUTH payload")
    assert keys.asked == []
    assert send(handshake, FrameType.AUTH) == OK


def test_a_wrong_key_may_be_followed_by_the_right_one() -> None:
    handshake = handshake_in(State.GREETED)
    for wrong in (b"\0\0", b"\0\3bad"):
        assert send(handshake, FrameType.AUTH, wrong) == (401, "invalid API key")
        assert handshake.identity is None
    assert send(handshake, FrameType.AUTH) == OK
    assert handshake.identity == ALICE


def test_who_is_locked_out_is_told_so() -> None:
    keys = Keys()
    keys.locked = True
    handshake = handshake_in(State.GREETED, keys)
    assert send(handshake, FrameType.AUTH) == (401, "too many failed attempts, try again later")
    assert handshake.identity is None
    keys.locked = False
    assert send(handshake, FrameType.AUTH) == OK


def test_a_key_is_looked_at_only_when_its_turn_has_come() -> None:
    keys = Keys()
    send(handshake_in(State.NEW, keys), FrameType.AUTH)
    assert keys.asked == []
    handshake = handshake_in(State.READY, keys)
    asked = len(keys.asked)
    assert send(handshake, FrameType.AUTH, b"\0\3bad") == AUTH_TWICE
    assert len(keys.asked) == asked
    assert handshake.identity == ALICE


def test_gap_12_ping_before_auth_is_401() -> None:
    for state in (State.NEW, State.GREETED):
        assert send(handshake_in(state), FrameType.PING, b"anything") == EARLY


def test_gap_13_client_nack_and_pong() -> None:
    for kind in (FrameType.NACK, FrameType.PONG):
        assert send(handshake_in(State.GREETED), kind, b"anything") == EARLY
        assert send(handshake_in(State.READY), kind, b"anything") == NOTHING


@given(st.lists(st.tuples(st.sampled_from(sorted(PRESCRIBED)), st.sampled_from([None, b"", b"\0\2", b"junk"]))))
def test_no_frame_leads_past_the_handshake(sent: list[tuple[FrameType, bytes | None]]) -> None:
    """Whatever is sent, the session sees nothing before a good HELLO and a good AUTH, in this order."""
    handshake = Handshake(Keys())
    settled = []
    for kind, payload in sent:
        reply = send(handshake, kind, payload)
        if reply == OK:
            settled.append(kind)
        assert handshake.ready == (settled == [FrameType.HELLO, FrameType.AUTH])
        assert (reply == SESSION) == (handshake.ready and TABLE[State.READY][kind] is Action.SERVE)


def test_hello_and_auth_as_a_client_writes_them() -> None:
    handshake = Handshake(Keys())
    replies = [handshake.step(frame) for frame in Framer().feed(encode_hello(1, 2) + encode_auth(2, "good"))]
    assert replies == [codec.encode_ack(1, 0), codec.encode_ack(2, 0)]
    assert (handshake.ready, handshake.version, handshake.identity) == (True, 2, ALICE)
