"""Conversations with servers that do what a test wants: what is noticed, and what is told of it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from penstock.conformance.connection import Connection, TcpConnection, Unexpected, Unreachable
from penstock.conformance.player import felix_events, play, variables
from penstock.conformance.results import FAILED, OK, SKIPPED, Result
from penstock.conformance.vectors import Conversation, Session, Step

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def talk(steps: list[dict[str, Any]], **more: Any) -> Conversation:
    return msgspec.convert({"name": "c", "why": "w", "source": "s", "steps": steps, **more}, Conversation)


def session(**more: Any) -> Session:
    return msgspec.convert({"protocol": "blipmq", "about": "", "conversations": [], **more}, Session)


def played(
    serve: Serve, conversation: Conversation, protocol: str = "blipmq", given: dict[str, str] | None = None,
    of: Session | None = None, timeout: float = 10.0,
) -> Result:  # fmt: skip
    """Over a real socket, because half-closed and reset connections are part of it."""

    async def run() -> Result:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]

        async def connect() -> Connection:
            return await TcpConnection.connect(protocol, host, port, None, 2)

        async with server:
            return await play(protocol, "session_x", of or session(), conversation, connect, given or {}, timeout)

    return asyncio.run(run())


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # noqa: ARG001
    await reader.read()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # noqa: ARG001
    await reader.read(1)


PING = "u32( 07 00*8 )"


def test_a_server_that_answers_as_expected() -> None:
    result = played(echo, talk([{"send": PING}, {"reply": "u32( 07 <id:8> )"}, {"send": "u32( ${id} 'x' )"},
                                {"reply": "u32( 00*8 'x' )"}]))  # fmt: skip
    assert result == Result("blipmq", "session_x/c", OK, "", "w", "s")


@pytest.mark.parametrize(
    ("serve", "steps", "said"),
    [
        (echo, [{"send": PING}, {"reply": "u32( 08 00*8 )", "note": "PONG"}], "step 2 (PONG): at byte 4"),
        (silent, [{"send": PING}, {"reply": PING}], "step 2: a reply did not come within 0.2 s"),
        (hang_up, [{"send": PING}, {"reply": PING}], "step 2: the server ended it without a reply"),
        (silent, [{"send": PING}, {"ended": True}], "step 2: the end of the stream did not come within 0.2 s"),
        (silent, [{"send": PING}, {"closed": True}], "step 2: the end of the connection did not come within 0.2 s"),
        (echo, [{"send": PING}, {"ended": True}], "step 2: one more frame came: 0000000907"),
        (echo, [{"send": "00000009 07"}, {"send": "", "end": True}, {"reply": PING}], "ended within a frame: 00"),
        (echo, [{"send": "ffffffff"}, {"reply": "..."}], "a frame of 4294967295 bytes"),
        (echo, [{"send": "${nobody}"}], "step 1: nothing is known of ${nobody}"),
        (echo, [{"send": PING, "stream": "other"}], "a TCP connection has one stream only"),
        (echo, [{"accept": "events"}], "a TCP connection has one stream only"),
        (echo, [{"send": PING}, {"reply": {"any": ["00", "u32( 08 ... )"]}}], "none of what is allowed"),
    ],
)  # fmt: skip
def test_a_server_that_does_not(serve: Serve, steps: list[dict[str, Any]], said: str) -> None:
    result = played(serve, talk(steps), timeout=0.2 if "within 0.2 s" in said else 10)
    assert result.status == FAILED and said in result.detail


def test_one_of_several_replies_may_come() -> None:
    assert played(echo, talk([{"send": PING}, {"reply": {"any": ["00", PING]}}])).status == OK


def test_several_replies_may_come_in_any_order() -> None:
    other = "u32( 08 00*8 )"
    steps: list[dict[str, Any]] = [{"send": f"{PING} {other}"}, {"reply": {"all": [other, PING]}}]
    assert played(echo, talk(steps)).status == OK
    twice: list[dict[str, Any]] = [{"send": f"{PING} {PING}"}, {"reply": {"all": [other, PING]}}]
    assert "none of what is allowed" in played(echo, talk(twice)).detail


def test_an_end_is_noticed() -> None:
    assert played(hang_up, talk([{"send": PING}, {"ended": True}])).status == OK
    assert played(hang_up, talk([{"send": PING}, {"closed": True}])).status == OK


def test_a_request_is_said_again_until_it_is_answered() -> None:
    async def third_time(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            data = await reader.readexactly(13)
        writer.write(data)
        await reader.read()

    again = {"send": PING, "reply": PING, "again_ms": 10}
    assert played(third_time, talk([again])).status == OK
    assert "a reply did not come" in played(silent, talk([again]), timeout=0.2).detail


def test_a_slow_step_has_more_time() -> None:
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.readexactly(13)
        await asyncio.sleep(0.7)
        writer.write(data)
        await reader.read()

    steps: list[dict[str, Any]] = [{"send": PING}, {"reply": PING, "slow": True}]
    assert played(late, talk(steps), timeout=0.5).status == OK
    assert "within 0.5 s" in played(late, talk([*steps[:1], {"reply": PING}]), timeout=0.5).detail


def test_what_is_needed_and_not_given_is_told() -> None:
    result = played(echo, talk([], needs=["user", "password"]), given={"user": "u"})
    assert (result.status, result.detail) == (SKIPPED, "needs --password")


def test_what_is_given_and_cannot_be_said_is_told() -> None:
    said = "there is no way to say --token in this dialect"
    for result in (
        played(echo, talk([], without=["token"]), given={"token": "t"}),
        played(echo, talk([]), given={"token": "t"}, of=session(without=["token"])),
    ):
        assert (result.status, result.detail) == (SKIPPED, said)
    assert played(echo, talk([], without=["token"])).status == OK


def test_who_we_are_is_said_first_if_it_is_known() -> None:
    login = [{"send": "u32( '${user}' )"}, {"reply": "u32( 'alice' )"}]
    of = session(login=login, login_needs=["user"])
    steps = [{"send": PING}, {"reply": PING}]
    assert played(echo, talk(steps), given={"user": "alice"}, of=of).status == OK
    assert played(echo, talk(steps), of=of).status == OK
    assert "login 2: at byte" in played(echo, talk(steps), given={"user": "bobby"}, of=of).detail
    assert played(echo, talk(steps, login=False), given={"user": "bobby"}, of=of).status == OK


def test_a_checksum_that_is_wrong_is_noticed() -> None:
    async def damage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readexactly(15))[:-1] + b"\x07")
        await reader.read()

    steps = [{"send": "vdb1( 01 )"}, {"reply": "..."}]
    assert played(echo, talk(steps), "kimberlite").status == OK
    assert "the checksum of a reply" in played(damage, talk(steps), "kimberlite").detail


JSON = {"type": "Pong", "n": 3, "name": "x", "none": None, "list": [1, {"a": True}]}


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ({"type": "Pong"}, ""),
        (JSON, ""),
        ({"n": "$number", "name": "$text", "none": "$any", "type": "$has on"}, ""),
        ({"type": "Ping"}, "the reply.type is 'Pong', 'Ping' expected"),
        ({"colour": 1}, "the reply has no colour"),
        ({"n": "$text"}, "the reply.n is 3, $text expected"),
        ({"name": "$number"}, "the reply.name is 'x', $number expected"),
        ({"type": "$has ing"}, "without 'ing'"),
        ({"none": 0}, "the reply.none is None, 0 expected"),
        ({"list": [1]}, "the reply.list is"),
        ({"list": [1, {"a": 1}]}, "the reply.list[1].a is True, 1 expected"),
    ],
)
def test_replies_in_json(expected: dict[str, Any], said: str) -> None:
    result = played(echo, talk([{"send": {"json": JSON}}, {"reply": {"json": expected}}]), "rustlog")
    assert said in result.detail and (result.status == OK) == (said == "")


def test_variables_are_put_into_json() -> None:
    steps = [{"send": {"json": {"a": ["${topic}"]}}}, {"reply": {"json": {"a": ["${topic}"]}}}]
    assert played(echo, talk(steps), "rustlog").status == OK


def test_a_reply_that_is_no_json() -> None:
    result = played(echo, talk([{"send": "u32( 'hello' )"}, {"reply": {"json": {}}}]), "rustlog")
    assert "a reply in JSON was expected" in result.detail


def test_a_server_that_is_not_there() -> None:
    async def connect() -> Connection:
        return await TcpConnection.connect("blipmq", "127.0.0.1", 1, None, 2)

    with pytest.raises(Unreachable, match=r"no server answers at 127\.0\.0\.1:1"):
        asyncio.run(play("blipmq", "s", session(), talk([]), connect, {}, 1))


def test_names_have_always_the_same_length_and_are_never_the_same() -> None:
    first, second = variables({}), variables({})
    assert len(first["topic"]) == len(second["topic"]) == 20 and first["topic"] != second["topic"]
    assert variables({"key": "dev-key"})["key"] == b"dev-key"


def test_tenant_and_token_of_kimberlite_in_each_encoding() -> None:
    said = variables({"tenant": "300", "token": "abc"})
    assert said["tenant_short"] == b"\xac\x02" and said["tenant_wide"] == struct.pack("<Q", 300)
    assert said["token_short"] == b"\1\3abc" and said["token_wide"] == b"\1\3" + bytes(7) + b"abc"
    assert said["token_printed"] == b"\1\0\0\0\3" + bytes(7) + b"abc"
    assert (variables({})["token_short"], variables({})["token_printed"]) == (b"\0", bytes(4))


# -- events of Felix


def felix(payload: bytes, flags: int = 0) -> bytes:
    return struct.pack(">4sHHI", b"FLX1", 1, flags, len(payload)) + payload


TWO = bytes.fromhex("00000002 00000003 6f6e65 00000003 74776f")


@pytest.mark.parametrize(
    ("frame", "encoding"),
    [
        (felix(TWO, 0x04), ""),
        (felix(bytes(8) + TWO, 0x02), "binary"),
        (felix(bytes(8) + TWO, 0x24), "binary"),
        (felix(bytes(16) + TWO, 0x22), "binary"),
        (felix(b'{"type":"event_batch","payloads":["b25l","dHdv"]}'), "json"),
    ],
)
def test_events_in_every_form(frame: bytes, encoding: str) -> None:
    assert felix_events(frame, encoding) == [b"one", b"two"]


def test_one_event_in_json() -> None:
    assert felix_events(felix(b'{"type":"event","payload":"b25l"}'), "") == [b"one"]


@pytest.mark.parametrize(
    ("frame", "encoding", "said"),
    [
        (felix(TWO, 0x04), "json", "json events were expected"),
        (felix(b'{"type":"event","payload":"b25l"}'), "binary", "binary events were expected"),
        (felix(TWO[:3], 0x04), "", "these are no events"),
        (felix(b'{"type":"error","message":"x"}'), "", "these are no events"),
        (felix(b'{"type":"event","payload":"b25"}'), "", "these are no events"),
    ],
)
def test_what_are_no_events(frame: bytes, encoding: str, said: str) -> None:
    with pytest.raises(Unexpected, match=said):
        felix_events(frame, encoding)


def test_a_step_that_nobody_knows_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"sned": "00"}, Step)
