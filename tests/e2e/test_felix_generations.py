"""The original's clients, each generation as it behaves: what they send, in their order, and what they insist on.

| | `auth` | ids of subscriptions | events that it reads | acknowledgements |
|---|---|---|---|---|
| G1a (v0.1.0) | says nothing of flags | chosen by the client | 0x0002 | JSON |
| G1b (v0.1.1) | the same | given by the broker | 0x0002 | JSON |
| G2 | says which flags it knows | given by the broker | 0x0024 | binary |
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.e2e.felix_aioquic import (
    Ack,
    Closed,
    ConnectionLost,
    Events,
    Link,
    Message,
    Stream,
    StreamReset,
    ack,
    acked_batch,
    b64,
    batch,
    connect,
    events,
    frame,
    run,
    say,
)
from tests.launcher import BrokerProcess

TENANT, NAMESPACE, CACHE = "t1", "default", "primary"
OK = {"type": "ok"}
ISSUER, STRANGER = (Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)) for number in (1, 2))
ALL = tuple(
    f"{action}:{kind}:{TENANT}/*"
    for action, kind in (
        ("stream.publish", "stream"),
        ("stream.subscribe", "stream"),
        ("cache.read", "cache"),
        ("cache.write", "cache"),
    )
)


class Generation(NamedTuple):
    client_flags: int | None
    chosen_id: int | None
    event_flags: int

    @property
    def binary_acks(self) -> bool:
        return self.client_flags is not None and bool(self.client_flags & 0x0008)


G1A = Generation(None, 0xFFFF_FFFF_FFFF_FFFE, 0x0002)
G1B = Generation(None, None, 0x0002)
G2 = Generation(63, None, 0x0024)
G2_WITHOUT_OFFSETS = Generation(0x001F, None, 0x0004)  # as one of its builds that was told not to
GENERATIONS = pytest.mark.parametrize("generation", [G1A, G1B, G2, G2_WITHOUT_OFFSETS], ids=["G1a", "G1b", "G2", "G2-"])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("felix")
    key = folder / "issuer.pem"
    key.write_bytes(ISSUER.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    environment = {
        "PENSTOCK_SECURITY__MODE": "on",
        "PENSTOCK_SECURITY__TOKEN_KEYS": json.dumps([str(key)]),
        "PENSTOCK_SECURITY__LOCKOUT_FAILURES": "1000",
        "PENSTOCK_FELIX__REQUIRE_AUTH": "true",
    }
    with BrokerProcess(folder / "data", "--listen", "felix=127.0.0.1:0", **environment).ready() as process:
        yield process


# -- what clients say


def token(*perms: str, key: Ed25519PrivateKey = ISSUER, alg: str = "EdDSA", **claims: object) -> str:
    """`claims`: other than usual; None: left out."""
    now = int(time.time())
    usual = {"iss": "felix-auth", "aud": "felix-broker", "sub": "alice", "tid": TENANT, "jti": "1"}
    said = {**usual, "iat": now, "exp": now + 3600, "perms": list(perms or ALL), **claims}
    head = _part({"typ": "JWT", "alg": alg}) + b"." + _part({k: v for k, v in said.items() if v is not None})
    return (head + b"." + _url(key.sign(head))).decode()


def _part(claims: object) -> bytes:
    return _url(json.dumps(claims).encode())


def _url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def names(stream: str, tenant: str = TENANT) -> dict[str, str]:
    return {"tenant_id": tenant, "namespace": NAMESPACE, "stream": stream}


def key(name: str, cache: str = CACHE) -> dict[str, str]:
    return {"tenant_id": TENANT, "namespace": NAMESPACE, "cache": cache, "key": name}


def auth(bearer: str, flags: int | None = None, tenant: str = TENANT) -> bytes:
    said = {"tenant_id": tenant, "token": bearer}
    return say("auth", **said) if flags is None else say("auth", **said, client_flags=flags)


def publish(stream: str, payload: bytes, request_id: int | None = None, ack: str = "per_message") -> bytes:
    said: dict[str, object] = {**names(stream), "payload": b64(payload)}
    if request_id is not None:
        said["request_id"] = request_id
    return say("publish", **said, ack=ack)


def unacked(stream: str, *payloads: bytes) -> bytes:
    return frame(batch((TENANT, NAMESPACE, stream), payloads), 0x0001)


def acked(request_id: int, stream: str, *payloads: bytes, mode: int = 2) -> bytes:
    return acked_batch(request_id, (TENANT, NAMESPACE, stream), payloads, mode)


# -- what clients do


async def authenticated(
    link: Link, generation: Generation = G2, bearer: str | None = None, *, bidirectional: bool = True
) -> Stream:
    """A stream that may be used."""
    stream = link.open(bidirectional=bidirectional)
    stream.send(auth(bearer or token(), generation.client_flags))
    if bidirectional:
        expected = (
            OK if generation.client_flags is None else {"type": "auth_ok", "server_flags": generation.client_flags}
        )
        assert await stream.message() == expected
    return stream


async def subscribe(
    link: Link, stream: str, generation: Generation = G2, start: object = None, number: int | None = None
) -> tuple[Stream, int]:
    """The event stream behind its hello, and the id. The control stream is over after that, as its client wants it."""
    said: dict[str, object] = dict(names(stream))
    chosen = generation.chosen_id if number is None else number
    if chosen is not None:
        said["subscription_id"] = chosen
    if start is not None:
        said["start"] = start
    control = await authenticated(link, generation)
    reply = await control.ask(say("subscribe", **said), end=True)
    assert reply.keys() == {"type", "subscription_id"} and reply["type"] == "subscribed", reply
    given = reply["subscription_id"]
    assert type(given) is int and given == (given if chosen is None else chosen)
    assert await control.rest() == []
    event_stream = await link.accept()
    assert await event_stream.message() == {"type": "event_stream_hello", "subscription_id": given}
    return event_stream, given


async def take(event_stream: Stream, count: int) -> list[tuple[int | None, bytes]]:
    """So many events, or the few more that come with the last of them, each with its offset."""
    found: list[tuple[int | None, bytes]] = []
    while len(found) < count:
        some = events(await event_stream.frame())
        for number, payload in enumerate(some.payloads):
            found.append((None if some.base_offset is None else some.base_offset + number, payload))
    return found


def numbered(first: int, behind: int) -> list[tuple[int | None, bytes]]:
    """Events whose payloads are their offsets."""
    return [(number, b"%d" % number) for number in range(first, behind)]


# -- a whole client


@GENERATIONS
def test_a_client_opens_its_pools_and_works_with_all_of_them(broker: BrokerProcess, generation: Generation) -> None:
    topic = f"pools-{generation.client_flags}-{generation.chosen_id}"
    bearer = token()

    async def main() -> None:
        async with AsyncExitStack() as stack:
            links = [await stack.enter_async_context(connect(broker.endpoint("felix"))) for _ in range(20)]
            publishers = [await authenticated(link, generation, bearer) for link in links[:4] for _ in range(2)]
            caches = [await authenticated(link, generation, bearer) for link in links[4:12] for _ in range(4)]
            subscriptions = [(await subscribe(link, topic, generation))[0] for link in links[12:]]
            for number, publisher in enumerate(publishers):
                publisher.send(unacked(topic, b"%d" % number))
                assert await take(subscriptions[0], 1) == [(number if generation is G2 else None, b"%d" % number)]
            for each in subscriptions[1:]:
                assert [payload for _, payload in await take(each, 8)] == [b"%d" % number for number in range(8)]
            for number, cache in enumerate(caches):
                put = say("cache_put", **key(f"{topic}-{number}"), value=b64(b"x"), request_id=number, ttl_ms=None)
                assert await cache.ask(put) == {"type": "cache_ok", "request_id": number}
            for publisher in publishers:
                publisher.send(end=True)
                assert await publisher.rest() == []

    run(main())


# -- publishing


@pytest.mark.parametrize("generation", [G1A, G2], ids=["G1", "G2"])
def test_acknowledgements_come_in_order_and_then_the_end(broker: BrokerProcess, generation: Generation) -> None:
    topic = f"ordered-{generation.client_flags}"

    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            publisher = await authenticated(link, generation)
            numbers = [7, 3, 1 << 63, 0, 0xFFFF_FFFF_FFFF_FFFF, *range(100, 300)]  # what a client likes to count by
            for number in numbers:
                publisher.send(
                    acked(number, topic, b"x", b"y") if generation.binary_acks else publish(topic, b"x", number)
                )
            publisher.send(end=True)
            found = await publisher.rest()
            if generation.binary_acks:
                assert [ack(each) for each in found] == [Ack(0, number, "") for number in numbers]
            else:
                assert [each.message for each in found] == [
                    {"type": "publish_ok", "request_id": number} for number in numbers
                ]

    run(main())


def test_a_client_may_say_everything_at_once(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = link.open()
            where = key("at-once")
            stream.send(
                auth(token(), 63),
                acked(1, "at-once", b"0"),
                say("cache_put", **where, value=b64(b"x"), request_id=2, ttl_ms=None),
                say("cache_get", **where, request_id=3),
                say("subscribe", **names("at-once"), start="earliest"),
                end=True,
            )
            first, second, *others = await stream.rest()
            assert (first.message["type"], ack(second)) == ("auth_ok", Ack(0, 1, ""))
            assert [each.message["type"] for each in others] == ["cache_ok", "cache_value", "subscribed"]
            event_stream = await link.accept()
            assert (await event_stream.message())["subscription_id"] == others[-1].message["subscription_id"]
            assert await take(event_stream, 1) == numbered(0, 1)

    run(main())


def test_both_kinds_of_acknowledgement_on_one_stream(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            publisher = await authenticated(link)
            said = {**names("mixed"), "payloads": [b64(b"0"), b64(b"1")]}
            publisher.send(
                say("publish_batch", **said, request_id=1, ack="per_batch"),
                acked(2, "mixed", b"2", mode=1),
                say("publish_batch", **said, request_id=3, ack="per_message"),
                say("publish", **names("mixed"), payload="", request_id=4),  # without a mode it wants one too
                unacked("mixed", b"7"),
                say("publish_batch", **said, request_id=5, ack="none"),
                acked(6, "mixed", mode=2),
                end=True,
            )
            found = await publisher.rest()
            assert [each.flags for each in found] == [0, 0x10, 0, 0, 0x10]
            told = [ack(each).request_id if each.flags else each.message["request_id"] for each in found]
            assert told == [1, 2, 3, 4, 6]

    run(main())


def test_who_wants_an_acknowledgement_has_to_number_it(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            publisher = await authenticated(link)
            error = await publisher.ask(publish("unnumbered", b"x"))
            assert error == {"type": "error", "message": "missing request_id for acked publish"}
            error = await publisher.ask(say("publish_batch", **names("unnumbered"), payloads=[]))
            assert error == {"type": "error", "message": "missing request_id for acked publish batch"}
            assert await publisher.ask(publish("unnumbered", b"x", 1)) == {"type": "publish_ok", "request_id": 1}

    run(main())


@pytest.mark.parametrize(
    ("generation", "flags"),
    [(G1A, 0x0009), (G1A, 0x0040), (G2, 0x0040), (G2, 0x0002), (G2, 0x0010)],
)
def test_flags_that_were_not_agreed_on_are_refused_and_the_stream_goes_on(
    broker: BrokerProcess, generation: Generation, flags: int
) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            publisher = await authenticated(link, generation)
            refused = await publisher.ask(frame(acked(1, "flags", b"x")[12:], flags))
            assert refused == {"type": "error", "message": "unsupported frame flags"}
            assert await publisher.ask(publish("flags", b"x", 2)) == {"type": "publish_ok", "request_id": 2}

    run(main())


def test_a_malformed_batch_is_acknowledged_as_an_error(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            publisher = await authenticated(link)
            publisher.send(frame(acked(9, "cut", b"a payload")[12:-3], 0x0009))
            status, number, text = ack(await publisher.frame())
            assert (status, number) == (1, 9) and text
            publisher.send(acked(10, "cut", b"x"))
            assert ack(await publisher.frame()) == Ack(0, 10, "")

    run(main())


def test_publishing_on_a_stream_without_answers(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            event_stream, _ = await subscribe(link, "one-way")
            publisher = await authenticated(link, bidirectional=False)
            publisher.send(unacked("one-way", b"0", b"1"), publish("one-way", b"2", 1), acked(2, "one-way", b"3"))
            assert await take(event_stream, 4) == numbered(0, 4)
            stranger = link.open(bidirectional=False)
            stranger.send(unacked("one-way", b"not heard"))
            assert await stranger.was_stopped() == 0
            publisher.send(unacked("one-way", b"4"), end=True)
            assert await take(event_stream, 1) == numbered(4, 5)

    run(main())


# -- subscriptions


@GENERATIONS
def test_events_come_as_the_client_reads_them(broker: BrokerProcess, generation: Generation) -> None:
    topic = f"events-{generation.client_flags}-{generation.chosen_id}"

    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            event_stream, number = await subscribe(link, topic, generation)
            publisher = await authenticated(link, generation)
            await publisher.ask(publish(topic, b"alone", 1))
            found = [events(await event_stream.frame())]
            publisher.send(unacked(topic, b"", b"two", b"x" * 5000))
            found.append(events(await event_stream.frame()))
            said = number if generation.event_flags & 0x0002 else None
            base = [0, 1] if generation.event_flags & 0x0020 else [None, None]
            assert found == [
                Events(generation.event_flags, said, base[0], [b"alone"]),
                Events(generation.event_flags, said, base[1], [b"", b"two", b"x" * 5000]),
            ]

    run(main())


def test_a_client_tells_its_subscriptions_apart_by_the_ids_that_it_chose(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            streams = {}
            for number in (5, 0, (1 << 64) - 1):
                streams[number], _ = await subscribe(link, f"chosen-{number}", G1A, number=number)
            publisher = await authenticated(link, G1A)
            for number in streams:
                publisher.send(unacked(f"chosen-{number}", b"for %d" % number))
            for number, stream in streams.items():
                assert events(await stream.frame()) == Events(0x0002, number, None, [b"for %d" % number])
            async with connect(broker.endpoint("felix")) as other:  # they are of one connection only
                same, _ = await subscribe(other, "chosen-5", G1A, number=5)
                publisher.send(unacked("chosen-5", b"for both"))
                for stream in (same, streams[5]):
                    assert events(await stream.frame()) == Events(0x0002, 5, None, [b"for both"])

    run(main())


def test_a_subscription_starts_where_it_is_told_to(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            publisher = await authenticated(link)
            publisher.send(acked(1, "replayed", *(b"%d" % number for number in range(300))))
            assert ack(await publisher.frame()).status == 0
            starts: list[tuple[int, object]] = [(0, "earliest"), (300, "latest"), (300, None)]
            starts += [(first, {"offset": first}) for first in (0, 1, 64, 150, 299, 300)]
            streams = [(first, (await subscribe(link, "replayed", start=start))[0]) for first, start in starts]
            publisher.send(acked(2, "replayed", b"300", b"301"))
            for first, stream in streams:
                assert await take(stream, 302 - first) == numbered(first, 302)

    run(main())


def test_a_long_replay_comes_through_a_small_window(broker: BrokerProcess) -> None:
    """The reply and the hello are there before, and all that is larger than the window behind them."""

    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            publisher = await authenticated(link)
            for number in range(10):
                publisher.send(acked(number, "long", *(b"%d" % (30 * number + at) for at in range(30))))
                publisher.send(acked(number, "wide", *(bytes(10_000) for _ in range(10))))
                assert ack(await publisher.frame()) == ack(await publisher.frame()) == Ack(0, number, "")
        async with connect(broker.endpoint("felix"), window=16_384) as link:
            long, _ = await subscribe(link, "long", start="earliest")
            wide, _ = await subscribe(link, "wide", start="earliest")
            assert await take(long, 300) == numbered(0, 300)
            assert await take(wide, 100) == [(number, bytes(10_000)) for number in range(100)]

    run(main())


def test_a_start_that_is_not_there_is_a_cursor_error(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            publisher = await authenticated(link)
            publisher.send(acked(1, "short", b"0", b"1"))
            assert ack(await publisher.frame()).status == 0
            control = await authenticated(link)
            refused = await control.ask(say("subscribe", **names("short"), start={"offset": 3}), end=True)
            assert refused == {"type": "subscribe_cursor_error", "reason": "in_future", "requested": 3, "available": 2}
            assert await control.rest() == []
            assert link.opened.empty()

    run(main())


def test_a_dropped_subscription_stops_with_code_zero(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            dropped, _ = await subscribe(link, "dropped")
            kept, _ = await subscribe(link, "dropped")
            publisher = await authenticated(link)
            publisher.send(unacked("dropped", b"0"))
            assert await take(dropped, 1) == await take(kept, 1) == numbered(0, 1)
            dropped.stop(0)
            with pytest.raises(StreamReset, match="code 0x0"):
                await dropped.rest()
            publisher.send(unacked("dropped", b"1"))
            assert await take(kept, 1) == numbered(1, 2)

    run(main())


def test_a_replay_that_is_not_wanted_any_more_stops(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix"), window=16_384) as link:
            publisher = await authenticated(link)
            for number in range(20):
                publisher.send(acked(number, "unwanted", *(bytes(10_000) for _ in range(10))))
                assert ack(await publisher.frame()) == Ack(0, number, "")
            for _ in range(3):
                event_stream, _ = await subscribe(link, "unwanted", start="earliest")
                assert events(await event_stream.frame()).base_offset == 0
                event_stream.stop(0)
                with pytest.raises(StreamReset, match="code 0x0"):
                    await event_stream.rest()
            publisher.send(acked(20, "unwanted", b"x"))
            assert ack(await publisher.frame()) == Ack(0, 20, "")

    run(main())


# -- the cache


@pytest.mark.parametrize("generation", [G1A, G2], ids=["G1", "G2"])
def test_a_cache_stream_answers_in_order(broker: BrokerProcess, generation: Generation) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = await authenticated(link, generation)
            expected: list[Message] = []
            for number in range(50):
                where, value = key(f"k{number}"), b64(b"%d" % number)
                stream.send(
                    say("cache_put", **where, value=value, request_id=2 * number, ttl_ms=None),
                    say("cache_get", **where, request_id=2 * number + 1),
                )
                expected.append({"type": "cache_ok", "request_id": 2 * number})
                expected.append({"type": "cache_value", **where, "value": value, "request_id": 2 * number + 1})
            assert [await stream.message() for _ in range(100)] == expected
            missing = await stream.ask(say("cache_get", **key("never"), request_id=0))
            assert missing == {"type": "cache_value", **key("never"), "value": None, "request_id": 0}

    run(main())


def test_caches_of_other_names_are_other_caches(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = await authenticated(link)
            await stream.ask(say("cache_put", **key("same", "one"), value=b64(b"1"), request_id=1, ttl_ms=60_000))
            other = await stream.ask(say("cache_get", **key("same", "other"), request_id=2))
            assert other["value"] is None
            assert (await stream.ask(say("cache_get", **key("same", "one"), request_id=3)))["value"] == b64(b"1")

    run(main())


# -- the four points of the original's conformance runner


def test_what_the_original_runs_for_conformance(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:

            async def alone(request: bytes) -> Message:
                """On a stream of its own, which is ended with it."""
                stream = await authenticated(link, G1B)
                reply = await stream.ask(request, end=True)
                assert await stream.rest() == []
                return reply

            event_stream, number = await subscribe(link, "conformance", G1B)
            for request_id, payload in ((1, b"alpha"), (2, b"beta")):
                reply = await alone(publish("conformance", payload, request_id))
                assert reply == {"type": "publish_ok", "request_id": request_id}
            found: list[bytes] = []
            while len(found) < 2:
                some = events(await event_stream.frame())
                assert some.subscription_id == number
                found += some.payloads
            assert found == [b"alpha", b"beta"]

            where = key("conformance")
            assert await alone(say("cache_put", **where, value=b64(b"value"), ttl_ms=100)) == OK
            put = time.monotonic()
            value = await alone(say("cache_get", **where))
            if time.monotonic() - put < 0.09:
                assert value == {"type": "cache_value", **where, "value": b64(b"value")}
            await asyncio.sleep(0.15)
            assert await alone(say("cache_get", **where)) == {"type": "cache_value", **where, "value": None}

    run(main())


# -- who is let in, and what for


BAD_TOKENS: dict[str, Callable[[], str]] = {
    "none": lambda: "",
    "no token": lambda: "demo-token",
    "nonsense": lambda: "a.b.c",
    "of another issuer": lambda: token(key=STRANGER),
    "unsigned": lambda: token(alg="none"),
    "another algorithm": lambda: token(alg="HS256"),
    "expired": lambda: token(exp=int(time.time()) - 90),
    "for ever": lambda: token(exp=None),
    "not yet": lambda: token(nbf=int(time.time()) + 3600),
    "of another tenant": lambda: token(tid="t2"),
    "of no tenant": lambda: token(tid=None),
    "said by somebody else": lambda: token(iss="somebody"),
    "for somebody else": lambda: token(aud="something"),
    "nobody's": lambda: token(sub=""),
    "permissions are no list": lambda: token(perms="all of them"),
}


@pytest.mark.parametrize("bearer", BAD_TOKENS.values(), ids=BAD_TOKENS)
def test_a_token_that_is_not_right_is_not_taken(broker: BrokerProcess, bearer: Callable[[], str]) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = link.open()
            stream.send(auth(bearer(), 63), publish("let-in", b"x", 1))
            assert [each.message for each in await stream.rest()] == [{"type": "error", "message": "auth failed"}]
            assert await stream.was_stopped() == 0
            await authenticated(link)  # the connection is as good as before

    run(main())


def test_auth_comes_first_and_once(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            for request in (publish("unknown", b"x", 1), unacked("unknown", b"x"), say("cache_get", **key("k"))):
                stream = link.open()
                stream.send(request)
                (only,) = await stream.rest()
                assert only.message["message"] == "auth required"
            stream = await authenticated(link)
            stream.send(auth(token()))
            (only,) = await stream.rest()
            assert only.message == {"type": "error", "message": "auth already established"}

    run(main())


def test_a_stream_acts_in_the_tenant_of_its_token_only(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            stream = link.open()
            refused = await stream.ask(auth(token(tid="t2"), tenant=TENANT))
            assert refused == {"type": "error", "message": "auth failed"}
            elsewhere = say("publish", **names("s", "t2"), payload="", request_id=1)
            refused = await (await authenticated(link)).ask(elsewhere)
            assert refused == {"type": "publish_error", "request_id": 1, "message": "tenant mismatch"}
            refused = await (await authenticated(link)).ask(say("subscribe", **names("s", "t2")))
            assert refused == {"type": "error", "message": "tenant mismatch"}

    run(main())


FORBIDDEN = {"type": "error", "message": "forbidden"}


def test_each_permission_allows_what_it_says(broker: BrokerProcess) -> None:
    requests = {
        f"stream.publish:stream:{TENANT}/{NAMESPACE}/mine-*": publish("mine-1", b"x", 1),
        f"stream.subscribe:stream:{TENANT}/{NAMESPACE}/mine-1": say("subscribe", **names("mine-1")),
        f"cache.read:cache:{TENANT}/*/mine": say("cache_get", **key("k", "mine"), request_id=2),
        f"cache.write:cache:{TENANT}/{NAMESPACE}/*": say("cache_put", **key("k", "mine"), value="", request_id=3),
    }
    answers = {True: ["publish_ok", "subscribed", "cache_value", "cache_ok"], False: ["publish_error", *["error"] * 3]}

    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            for permission in requests:
                for number, (needed, request) in enumerate(requests.items()):
                    stream = await authenticated(link, bearer=token(permission))
                    allowed = needed == permission
                    reply = await stream.ask(request)
                    assert reply["type"] == answers[allowed][number], (permission, needed)
                    if not allowed:
                        assert reply["message"] == "forbidden"
                        assert await stream.rest() == []  # that was the end of it
                        assert await stream.was_stopped() == 0

    run(main())


def test_names_beside_the_pattern_are_forbidden(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            bearer = token(f"stream.publish:stream:{TENANT}/{NAMESPACE}/mine-*", "cache.read:cache:t2/*")
            stream = await authenticated(link, bearer=bearer)
            reply = await stream.ask(publish("yours", b"x", 1))
            assert reply == {"type": "publish_error", "request_id": 1, "message": "forbidden"}
            stream = await authenticated(link, bearer=bearer)
            assert await stream.ask(say("cache_get", **key("k"))) == FORBIDDEN

    run(main())


def test_what_is_forbidden_in_binary(broker: BrokerProcess) -> None:
    """Acknowledged, it is told, and the stream goes on; without, the stream ends and nothing is said."""

    async def main() -> None:
        async with connect(broker.endpoint("felix")) as link:
            bearer = token(f"stream.publish:stream:{TENANT}/{NAMESPACE}/mine-*")
            stream = await authenticated(link, bearer=bearer)
            stream.send(acked(1, "yours", b"x"), acked(2, "mine-2", b"x"))
            assert ack(await stream.frame()) == Ack(1, 1, "forbidden")
            assert ack(await stream.frame()) == Ack(0, 2, "")
            stream.send(unacked("yours", b"x"))
            assert await stream.rest() == []
            assert await stream.was_stopped() == 0

    run(main())


# -- the end, expected and not


def test_a_broker_that_stops_sends_what_there_is_and_says_goodbye(tmp_path: Path) -> None:
    async def main(process: BrokerProcess) -> None:
        async with connect(process.endpoint("felix")) as link:
            event_stream, _ = await subscribe(link, "stopped")
            publisher = await authenticated(link)
            publisher.send(*(acked(number, "stopped", b"%d" % number) for number in range(10)))
            first = await publisher.frame()
            process.signal(signal.SIGTERM)
            acks = [ack(each) for each in (first, *await publisher.rest())]
            assert acks == [Ack(0, number, "") for number in range(10)]  # what was accepted is finished
            assert await take(event_stream, 10) == numbered(0, 10)
            with pytest.raises(ConnectionLost):  # an end would tell the original's clients not to subscribe again
                await event_stream.frame()
            assert await link.ended() == Closed(0, True, "broker shutting down")

    with BrokerProcess(tmp_path / "data", "--listen", "felix=127.0.0.1:0").ready() as process:
        run(main(process))
        assert process.finish()[0] == 0


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    def start() -> BrokerProcess:
        return BrokerProcess(tmp_path / "data", "--listen", "felix=127.0.0.1:0").ready()

    def fingerprint(process: BrokerProcess) -> str:
        found = re.search(r"sha256:[0-9a-f]{64}", process.block)
        assert found is not None
        return found[0]

    pinned = tmp_path / "pinned.crt"
    acknowledged = 0

    async def publish_until_killed(process: BrokerProcess) -> None:
        nonlocal acknowledged
        pinned.write_bytes((tmp_path / "data" / "certificates" / "felix.crt").read_bytes())
        async with connect(process.endpoint("felix"), certificate=str(pinned)) as link:
            publisher = await authenticated(link, bearer="anything will do")
            for number in range(400):
                publisher.send(acked(number, "kept", *(b"%d" % (5 * number + at) for at in range(5))))
            while (found := await publisher.frame()) is not None:
                assert ack(found) == Ack(0, acknowledged, "")
                acknowledged += 1
                if acknowledged == 30:
                    process.signal(signal.SIGKILL)
                    process.process.wait()
                    link.quic.send_ping(0)  # all may be sent already: only who sends learns that nobody is there
                    link.transmit()

    async def read_again(process: BrokerProcess) -> None:
        async with connect(process.endpoint("felix"), certificate=str(pinned)) as link:
            event_stream, _ = await subscribe(link, "kept", start="earliest")
            publisher = await authenticated(link, bearer="anything will do")
            publisher.send(acked(1, "kept", b"the last"))
            found: list[tuple[int | None, bytes]] = []
            while not found or found[-1][1] != b"the last":
                found += await take(event_stream, 1)
            assert len(found) > 5 * acknowledged  # what came in and was not acknowledged in time may be there, too
            assert found == [*numbered(0, len(found) - 1), (len(found) - 1, b"the last")]

    with start() as process:
        with pytest.raises(ConnectionLost):
            run(publish_until_killed(process))
        assert acknowledged >= 30
        before = fingerprint(process)
    with start() as process:
        assert fingerprint(process) == before
        run(read_again(process))
