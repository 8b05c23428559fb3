"""Every flow of Felix's document, message by message, with another QUIC library and another hand for the frames."""

from __future__ import annotations

import asyncio
import re
import struct
import time
import urllib.request
from collections.abc import Iterator

import pytest
from tests.e2e.felix_aioquic import (
    Link,
    Message,
    Stream,
    StreamReset,
    b64,
    batch,
    connect,
    frame,
    run,
    say,
    unb64,
    until,
)
from tests.launcher import BrokerProcess

TENANT, NAMESPACE = "t1", "default"
OK = {"type": "ok"}
SUBSCRIPTIONS, STREAMS = 6, 8  # of one connection, as configured
WINDOW = 256 << 10  # bytes; so is this


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    environment = {
        "PENSTOCK_FELIX__KEEP_ALIVE_SECONDS": "0.3",
        "PENSTOCK_FELIX__SUBSCRIPTIONS": str(SUBSCRIPTIONS),
        "PENSTOCK_FELIX__STREAMS": str(STREAMS),
        "PENSTOCK_FELIX__CONNECTION_WINDOW": str(WINDOW),
        "PENSTOCK_FELIX__STREAM_WINDOW": str(WINDOW // 2),
    }
    data = tmp_path_factory.mktemp("felix") / "data"
    with BrokerProcess(data, "--listen", "felix=127.0.0.1:0", **environment).ready() as process:
        yield process


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Nobody is anybody here, and nothing comes into being by itself."""
    environment = {
        "PENSTOCK_SECURITY__MODE": "on",
        "PENSTOCK_SECURITY__GRANTS": (
            f'[{{"principal": "anonymous", "tenant": "{TENANT}", "topic": "public-*",'
            ' "permissions": ["read", "write", "create", "cache-read"]}]'
        ),
        "PENSTOCK_TOPICS__AUTO_CREATE_TOPICS": "false",
    }
    data = tmp_path_factory.mktemp("strict") / "data"
    with BrokerProcess(data, "--listen", "felix=127.0.0.1:0", **environment).ready() as process:
        yield process


def names(stream: str) -> dict[str, str]:
    return {"tenant_id": TENANT, "namespace": NAMESPACE, "stream": stream}


def publish(stream: str, payload: bytes, ack: str = "per_message", **fields: object) -> bytes:
    return say("publish", **names(stream), payload=b64(payload), ack=ack, **fields)


def publish_batch(stream: str, *payloads: bytes, ack: str = "per_batch", **fields: object) -> bytes:
    return say("publish_batch", **names(stream), payloads=[b64(each) for each in payloads], ack=ack, **fields)


def binary(stream: str, *payloads: bytes, flags: int = 0x0001) -> bytes:
    return frame(batch((TENANT, NAMESPACE, stream), payloads), flags)


async def subscribe(link: Link, stream: str, control: Stream | None = None) -> Stream:
    """The event stream, behind its hello."""
    control = control or link.open()
    reply = await control.ask(say("subscribe", **names(stream)))
    assert reply["type"] == "ok"
    found = await link.accept()
    assert await found.message() == {"type": "event_stream_hello", "subscription_id": reply["subscription_id"]}
    return found


def payloads(message: Message) -> list[bytes]:
    """Of `event` or `event_batch`."""
    found = [message["payload"]] if message["type"] == "event" else message["payloads"]
    return [unb64(each) for each in found]


async def take(event_stream: Stream, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += payloads(await event_stream.message())
    return found


# -- Connection Establishment


@pytest.mark.parametrize("alpn", [None, ["felix"], ["x"], ["h3", "felix"]], ids=["none", "felix", "x", "two"])
def test_a_connection_is_made_with_and_without_alpn(broker: BrokerProcess, alpn: list[str] | None) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix"), alpn=alpn) as link:
            assert link.alpn is None if alpn is None else link.alpn in alpn
            assert await link.open().ask(publish("established", b"x")) == OK

    run(main())


def test_the_certificate_is_the_one_that_the_broker_keeps(broker: BrokerProcess) -> None:
    data = re.search(r"^  data +(\S+)$", broker.block, re.MULTILINE)
    assert data is not None

    async def main() -> None:
        async with connect(broker.endpoint("felix"), certificate=f"{data[1]}/certificates/felix.crt") as link:
            assert await link.open().ask(publish("established", b"x")) == OK

    run(main())


def test_a_connection_survives_new_keys_and_new_ids(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            events, stream = await subscribe(link, "renewed"), link.open()
            for number in range(4):
                assert await stream.ask(publish("renewed", b"%d" % number)) == OK
                assert await take(events, 1) == [b"%d" % number]
                link.quic.request_key_update()
                link.quic.change_connection_id()

    run(main())


@pytest.mark.parametrize("lose", [5, 8])
def test_nothing_is_lost_with_datagrams(broker: BrokerProcess, lose: int) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix"), lose=lose) as link:
            events, stream = await subscribe(link, f"lossy-{lose}"), link.open()
            for number in range(20):
                stream.send(publish(f"lossy-{lose}", b"%d" % number, request_id=str(number)))
                stream.send(binary(f"lossy-{lose}", bytes([number]) * 5000))
            for number in range(20):
                assert await stream.message() == OK | {"request_id": str(number)}
            expected = [each for number in range(20) for each in (b"%d" % number, bytes([number]) * 5000)]
            assert await take(events, 40) == expected

    run(main())


def test_a_client_may_move_to_another_port(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            events, stream = await subscribe(link, "moved"), link.open()
            for number in range(3):
                assert await stream.ask(publish("moved", b"%d" % number)) == OK
                assert await take(events, 1) == [b"%d" % number]
                await link.move()

    run(main())


# -- Publish with Acknowledgement


def test_publish_and_publish_batch_are_answered_if_they_ask_for_it(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            events = await subscribe(link, "acked")
            stream = link.open()
            assert await stream.ask(publish("acked", b"0")) == OK
            assert await stream.ask(publish_batch("acked", b"1", b"2")) == OK
            stream.send(publish("acked", b"3", ack="none"), publish_batch("acked", b"4", b"5", ack="none"))
            assert await stream.ask(publish("acked", b"6", request_id="after-them")) == OK | {
                "request_id": "after-them"
            }
            assert await take(events, 7) == [b"%d" % number for number in range(7)]

    run(main())


def test_every_payload_is_one(broker: BrokerProcess) -> None:
    sent = [b"", b"\x00", bytes(range(256)), b"\xff" * 1000, "žluť".encode()]

    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            events = await subscribe(link, "any-bytes")
            stream = link.open()
            for each in sent:
                assert await stream.ask(publish("any-bytes", each)) == OK
            assert await stream.ask(publish_batch("any-bytes", *sent)) == OK
            stream.send(binary("any-bytes", *sent))
            assert await take(events, 15) == sent * 3

    run(main())


def test_a_batch_of_nothing_is_accepted(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = link.open()
            stream.send(binary("none-at-all"))
            assert await stream.ask(publish_batch("none-at-all")) == OK

    run(main())


def test_a_binary_batch_is_published_and_not_answered(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            events = await subscribe(link, "binary")
            stream = link.open()
            stream.send(binary("binary", *(b"%d" % number for number in range(100))))
            assert await stream.ask(publish("binary", b"100")) == OK
            assert await take(events, 101) == [b"%d" % number for number in range(101)]

    run(main())


# -- Subscribe and Receive Events


def test_events_come_on_a_stream_of_their_own_that_says_hello_first(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = link.open()
            assert await stream.ask(publish("heard", b"before anybody listened")) == OK
            reply = await stream.ask(say("subscribe", **names("heard")))
            number = reply["subscription_id"]
            assert reply == OK | {"subscription_id": number} and isinstance(number, str)

            events = await link.accept()
            assert events.number % 4 == 3  # opened by the server, and only the server sends
            assert await events.message() == {"type": "event_stream_hello", "subscription_id": number}

            assert await stream.ask(publish("heard", b"one")) == OK
            assert await events.message() == {"type": "event", **names("heard"), "payload": b64(b"one")}
            assert await stream.ask(publish_batch("heard", b"two", b"three")) == OK
            expected = {"type": "event_batch", **names("heard"), "payloads": [b64(b"two"), b64(b"three")]}
            assert await events.message() == expected

    run(main())


def test_every_subscription_has_its_stream_and_its_number(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link, connect(broker.endpoint("felix")) as other:
            control = link.open()
            streams = [await subscribe(link, "shared", control) for _ in range(3)]
            streams.append(await subscribe(other, "shared"))
            await control.ask(publish_batch("shared", b"0", b"1"))
            for each in streams:
                assert await take(each, 2) == [b"0", b"1"]

    run(main())


def test_stop_sending_ends_one_subscription_and_makes_room_for_another(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            control = link.open()
            streams = [await subscribe(link, "left", control) for _ in range(SUBSCRIPTIONS)]
            refused = await control.ask(say("subscribe", **names("left")))
            assert refused == {"type": "error", "message": "max subscriptions per connection exceeded"}

            streams[2].stop(0)
            with pytest.raises(StreamReset) as reset:
                await streams[2].rest()
            assert reset.value.code == 0
            streams[2] = await subscribe(link, "left", control)
            assert await control.ask(publish("left", b"to those who stayed")) == OK
            for each in streams:
                assert await take(each, 1) == [b"to those who stayed"]

    run(main())


# -- Cache Operations


def test_the_cache_by_pipelined_requests(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = link.open()
            stream.send(
                say("cache_put", request_id="1", key="cart", value=b64(b"three apples"), ttl_ms=None),
                say("cache_get", request_id="2", key="cart"),
                say("cache_get", request_id="3", key="nobody put this"),
                say("cache_put", request_id="4", key="cart", value=b64(b""), ttl_ms=60_000),
                say("cache_get", request_id="5", key="cart"),
            )
            found = {message["request_id"]: message for message in [await stream.message() for _ in range(5)]}
            value = {"type": "cache_value", "key": "cart"}
            assert found == {
                "1": OK | {"request_id": "1"},
                "2": value | {"request_id": "2", "value": b64(b"three apples")},
                "3": value | {"request_id": "3", "key": "nobody put this", "value": None},
                "4": OK | {"request_id": "4"},
                "5": value | {"request_id": "5", "value": ""},
            }

    run(main())


def test_what_is_in_the_cache_expires(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = link.open()
            await stream.ask(say("cache_put", request_id="b", key="long", value=b64(b"y"), ttl_ms=600_000))
            before = time.monotonic()
            await stream.ask(say("cache_put", request_id="a", key="short", value=b64(b"x"), ttl_ms=150))
            found = await stream.ask(say("cache_get", request_id="c", key="short"))
            if time.monotonic() - before < 0.15:
                assert found["value"] == b64(b"x")
            await asyncio.sleep(0.2)
            assert (await stream.ask(say("cache_get", request_id="d", key="short")))["value"] is None
            assert (await stream.ask(say("cache_get", request_id="e", key="long")))["value"] == b64(b"y")

    run(main())


def test_all_streams_and_connections_see_one_cache(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link, connect(broker.endpoint("felix")) as other:
            put = say("cache_put", request_id="1", key="seen", value=b64(b"by all"), ttl_ms=None)
            assert await link.open().ask(put) == OK | {"request_id": "1"}
            for each in (link.open(), other.open()):
                assert (await each.ask(say("cache_get", request_id="2", key="seen")))["value"] == b64(b"by all")

    run(main())


def test_the_cache_can_do_more_than_the_document_says(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = link.open()

            async def ask(kind: str, **fields: object) -> Message:
                return await stream.ask(say(kind, request_id="r", key="more", **fields))

            compared = {"type": "cache_cas_ok", "request_id": "r", "key": "more"}
            assert await ask("cache_cas", expected=None, value=b64(b"41")) == compared | {
                "stored": True,
                "value": b64(b"41"),
            }
            assert await ask("cache_cas", expected=b64(b"40"), value=b64(b"0")) == compared | {
                "stored": False,
                "value": b64(b"41"),
            }
            assert (await ask("cache_increment"))["value"] == b64(b"42")
            assert (await ask("cache_increment", by=-50))["value"] == b64(b"-8")
            assert await ask("cache_delete") == OK | {"request_id": "r", "deleted": True}
            assert await ask("cache_delete") == OK | {"request_id": "r", "deleted": False}
            await ask("cache_put", value=b64(b"no number"), ttl_ms=None)
            refused = await ask("cache_increment")
            assert (refused["type"], refused["request_id"]) == ("error", "r")

    run(main())


# -- Error Handling


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (frame(b"{}", magic=0x464C5832), "FLX1"),
        (b"GET / HTTP/1.1\r\n", "FLX1"),
        (frame(b"{}", version=2), "version 2"),
        (frame(b"{}", version=0), "version 0"),
        (struct.pack(">4sHHI", b"FLX1", 1, 0, (16 << 20) + 1), "16777217"),
        (struct.pack(">4sHHI", b"FLX1", 1, 1, 0xFFFF_FFFF), "4294967295"),
    ],
    ids=["magic", "another protocol", "version 2", "version 0", "a byte too long", "as long as can be"],
)
def test_a_malformed_header_closes_the_connection_with_an_error_code(
    broker: BrokerProcess, sent: bytes, why: str
) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as bystander, connect(broker.endpoint("felix")) as link:
            events = await subscribe(bystander, "bystander")
            stream = link.open()
            assert await stream.ask(publish("bystander", b"still well")) == OK
            stream.send(sent)
            code, application, reason = await link.ended()
            assert application and code > 0 and why in reason
            assert await take(events, 1) == [b"still well"]
            assert await bystander.open().ask(publish("bystander", b"unharmed")) == OK

    run(main())


BAD_MESSAGES = {
    "nothing": b"",
    "no JSON": b"{nonsense",
    "no object": b"[1,2]",
    "no UTF-8": b'{"type":"publish","stream":"\xff"}',
    "no type": b'{"key":"k"}',
    "an unknown type": b'{"type":"teleport"}',
    "the server's word": b'{"type":"event_stream_hello","subscription_id":"1"}',
    "a field is missing": b'{"type":"publish","tenant_id":"t1"}',
    "a field is of another kind": b'{"type":"subscribe","tenant_id":"t1","namespace":"default","stream":7}',
    "no base64": b'{"type":"cache_put","key":"k","value":"%%%","ttl_ms":null}',
    "no such ack": b'{"type":"publish","tenant_id":"t1","namespace":"d","stream":"s","payload":"","ack":"twice"}',
    "nested without end": b'{"a":' * 20_000,
    "no such tenant can be": b'{"type":"subscribe","tenant_id":"","namespace":"default","stream":"s"}',
}


@pytest.mark.parametrize("payload", BAD_MESSAGES.values(), ids=BAD_MESSAGES)
def test_a_bad_message_is_answered_and_the_stream_goes_on(broker: BrokerProcess, payload: bytes) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = link.open()
            for _ in range(2):
                answer = await stream.ask(frame(payload))
                assert answer["type"] == "error" and answer["message"]
                assert await stream.ask(publish("after", b"x")) == OK

    run(main())


def test_an_error_tells_whose_it_is(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = link.open()
            stream.send(
                say("cache_get", request_id="left", key="k"),
                say("cache_get", request_id="middle"),
                say("cache_get", request_id="right", key="k"),
            )
            found = [await stream.message() for _ in range(3)]
            assert [each["request_id"] for each in found] == ["left", "middle", "right"]
            assert [each["type"] for each in found] == ["cache_value", "error", "cache_value"]
            assert "key" in found[1]["message"]

    run(main())


@pytest.mark.parametrize(
    "body",
    [b"", b"\x00", b"\x00\x02t1", b"\x00\x01t\x00\x01n\x00\x01s\xff\xff\xff\xff"],
    ids=["nothing", "half a length", "one name", "more payloads than bytes"],
)
def test_a_bad_binary_batch_is_answered_and_the_stream_goes_on(broker: BrokerProcess, body: bytes) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = link.open()
            assert (await stream.ask(frame(body, 0x0001)))["type"] == "error"
            assert await stream.ask(publish("after", b"x")) == OK

    run(main())


def test_reserved_flags_are_ignored(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            events = await subscribe(link, "flagged")
            stream = link.open()
            for bit in range(1, 16):
                message = publish("flagged", b"%d" % bit)
                assert await stream.ask(frame(message[12:], 1 << bit)) == OK
            stream.send(binary("flagged", b"16", flags=0xFFFF), binary("flagged", b"17", flags=0x0009))
            assert await take(events, 17) == [b"%d" % number for number in range(1, 18)]

    run(main())


def test_an_unknown_stream_is_an_error_where_none_comes_into_being(strict: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(strict.endpoint("felix")) as link:
            stream = link.open()
            missing = {
                "type": "error",
                "message": f"stream not found: tenant={TENANT} namespace={NAMESPACE} stream=public-x",
            }
            for request in (
                publish("public-x", b"x"),
                publish("public-x", b"x", ack="none"),
                publish_batch("public-x", b"x"),
                binary("public-x", b"x"),
                say("subscribe", **names("public-x")),
            ):
                assert await stream.ask(request) == missing

    run(main())


def test_who_may_not_is_told_that_it_is_unauthorized(strict: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(strict.endpoint("felix")) as link:
            stream = link.open()
            scope = {"tenant_id": TENANT, "namespace": NAMESPACE, "cache": "public-c"}
            for number, request in enumerate(
                (
                    publish("private", b"x"),
                    publish_batch("private", b"x", ack="none"),
                    binary("private", b"x"),
                    say("subscribe", **names("private")),
                    say("cache_get", key="k"),
                    say("cache_put", key="k", value="", ttl_ms=None, **scope),
                )
            ):
                answer = await stream.ask(request)
                assert answer["type"] == "error" and "unauthorized" in answer["message"], number
            allowed = await stream.ask(say("cache_get", key="k", **scope))
            assert allowed == {"type": "cache_value", "key": "k", "value": None, **scope}

    run(main())


# -- Stream Types and Lifecycle


def test_frames_may_come_in_many_datagrams(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = link.open()
            for byte in publish("in pieces", b"one by one"):
                stream.send(bytes([byte]))
                await asyncio.sleep(0)
            assert await stream.message() == OK
            events = await subscribe(link, "in pieces")
            large = bytes(range(256)) * 1200  # about 400 KB of base64
            assert await stream.ask(publish("in pieces", large)) == OK
            stream.send(binary("in pieces", large[:-1]))
            assert await take(events, 2) == [large, large[:-1]]

    run(main())


def test_many_frames_may_come_in_one_datagram(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            events = await subscribe(link, "at once")
            stream = link.open()
            requests = [publish("at once", b"%d" % number, request_id=str(number)) for number in range(6)]
            stream.send(*requests, at_once=False)
            assert link.transmit() == 1
            assert [await stream.message() for _ in range(6)] == [
                OK | {"request_id": str(number)} for number in range(6)
            ]
            assert await take(events, 6) == [b"%d" % number for number in range(6)]

    run(main())


def test_streams_do_not_wait_for_each_other(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            streams = [link.open() for _ in range(4)]
            requests = [publish("crossed", b"x", request_id=f"of {number}") for number in range(4)]
            for stream, request in zip(streams, requests, strict=True):
                stream.send(request[:20])
            for stream, request in reversed(list(zip(streams, requests, strict=True))[1:]):
                stream.send(request[20:])
            for number in (2, 3, 1):
                assert await streams[number].message() == OK | {"request_id": f"of {number}"}
            streams[0].send(requests[0][20:])
            assert await streams[0].message() == OK | {"request_id": "of 0"}

    run(main())


def test_a_stream_that_the_client_ends_is_ended_behind_the_answers(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            for _ in range(3 * STREAMS):  # one that is not really over would not make room for the next
                stream = link.open()
                stream.send(publish("ended", b"x"), say("cache_get", request_id="1", key="k"), end=True)
                assert [each.message["type"] for each in await stream.rest()] == ["ok", "cache_value"]
            silent = link.open()
            silent.send(end=True)
            assert await silent.rest() == []

    run(main())


def test_a_subscription_outlives_the_stream_that_asked_for_it(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            control = link.open()
            events = await subscribe(link, "outlived", control)
            control.send(end=True)
            assert await control.rest() == []
            assert await link.open().ask(publish("outlived", b"x")) == OK
            assert await take(events, 1) == [b"x"]

    run(main())


def test_clients_may_publish_on_streams_without_answers(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            events = await subscribe(link, "one way")
            for _ in range(2 * STREAMS):
                stream = link.open(bidirectional=False)
                stream.send(publish("one way", b"0"), publish_batch("one way", b"1", b"2"), binary("one way", b"3"))
                assert await take(events, 4) == [b"0", b"1", b"2", b"3"]
                stream.send(end=True)

    run(main())


@pytest.mark.parametrize(
    "request_",
    [say("subscribe", **names("s")), say("cache_get", key="k"), frame(b"{")],
    ids=["subscribe", "cache_get", "nonsense"],
)
def test_what_would_need_an_answer_is_not_taken_where_there_is_none(broker: BrokerProcess, request_: bytes) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = link.open(bidirectional=False)
            stream.send(request_)
            assert await stream.was_stopped() == 0
            assert await link.open().ask(publish("elsewhere", b"x")) == OK

    run(main())


def test_a_stream_reset_in_the_midst_of_a_frame_harms_no_other(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            events = await subscribe(link, "half")
            for number in range(3 * STREAMS):  # as above: each has to be over for the next
                stream = link.open()
                assert await stream.ask(publish("half", b"%d" % number)) == OK
                stream.send(publish("half", b"never")[:-5])
                stream.reset(7)
            assert await take(events, 3 * STREAMS) == [b"%d" % number for number in range(3 * STREAMS)]
            stream = link.open()
            assert await stream.ask(publish("half", b"whole")) == OK
            assert await take(events, 1) == [b"whole"]

    run(main())


def test_a_stream_reset_before_anything_came_on_it_is_over_too(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            for _ in range(3 * STREAMS):
                stream = link.open()
                stream.reset(7)
                with pytest.raises(StreamReset):
                    await stream.rest()
            assert await link.open().ask(publish("half", b"x")) == OK

    run(main())


def test_what_is_given_up_leaves_the_window_as_wide_as_it_was(broker: BrokerProcess) -> None:
    """Every byte counts against what the connection may send before the broker takes it, also those of which nothing
    comes any more."""
    large = binary("given up", bytes(WINDOW))

    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            for _ in range(6):
                half = link.open()
                half.send(large[: WINDOW // 3])
                await asyncio.sleep(0.002)
                half.reset(7)
                useless = link.open(bidirectional=False)
                useless.send(frame(b"nonsense"), large)
                assert await useless.was_stopped() == 0
            stream = link.open()
            stream.send(large)
            assert await stream.ask(publish("given up", b"x")) == OK

    run(main())


def test_a_stream_that_ends_in_the_midst_of_a_frame_is_told_so(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = link.open()
            stream.send(publish("cut", b"whole"), publish("cut", b"half")[:-5], end=True)
            first, second = await stream.rest()
            assert first.message == OK and second.message["type"] == "error"
            assert await link.open().ask(publish("cut", b"x")) == OK

    run(main())


def test_who_takes_no_answers_gets_no_more(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            for _ in range(2 * STREAMS):
                stream = link.open()
                assert await stream.ask(publish("deaf", b"x")) == OK
                stream.stop(0)
                with pytest.raises(StreamReset):
                    await stream.rest()
                assert await stream.was_stopped() == 0  # nor is anything taken from it
                stream.reset(0)
            assert await link.open().ask(publish("deaf", b"x")) == OK

    run(main())


def test_what_came_before_a_hasty_goodbye_is_published(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            events = await subscribe(link, "hasty")
            for number in range(5):
                async with connect(broker.endpoint("felix")) as other:
                    other.open(bidirectional=number % 2 == 0).send(binary("hasty", b"%d" % number))
                assert await take(events, 1) == [b"%d" % number]

    run(main())


# -- Silence


def test_a_silent_client_is_kept_alive(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix"), idle_seconds=1.5) as link:
            events = await subscribe(link, "silence")
            await asyncio.sleep(2.2)
            assert link.closed is None
            assert await link.open().ask(publish("silence", b"x")) == OK
            assert await take(events, 1) == [b"x"]

    run(main())


def connections(broker: BrokerProcess) -> int:
    """Besides the one that asks."""
    with urllib.request.urlopen(f"http://{broker.address('http')}/metrics", timeout=5) as response:
        found = re.search(r"^active_connections (\d+)", response.read().decode(), re.MULTILINE)
    assert found is not None
    return int(found[1]) - 1


def test_a_client_that_vanishes_is_forgotten(broker: BrokerProcess) -> None:
    async def main() -> None:
        await until(lambda: connections(broker) == 0)  # those of other tests
        async with connect(broker.endpoint("felix"), idle_seconds=1.0) as link:
            await subscribe(link, "vanished")
            assert connections(broker) == 1
            link.vanish()
            await until(lambda: connections(broker) == 0)

    run(main())


def test_who_says_goodbye_is_forgotten_at_once(broker: BrokerProcess) -> None:
    async def main() -> None:
        await until(lambda: connections(broker) == 0)
        async with connect(broker.endpoint("felix"), idle_seconds=3600) as link:
            await subscribe(link, "left for good")
            assert connections(broker) == 1
        await until(lambda: connections(broker) == 0)

    run(main())
