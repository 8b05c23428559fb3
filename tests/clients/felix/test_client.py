"""Publishing, the cache and connections of both Felix clients, against a scripted server without a network."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.clients.felix.scripted_server import ScriptedServer, run

from penstock.clients.felix import (
    AsyncFelixClient,
    AuthenticationFailed,
    BadReply,
    CertificateRefused,
    ClientClosed,
    ConnectionFailed,
    FelixClient,
    Forbidden,
    Limits,
    OutcomeUnknown,
    Overloaded,
    PipelineError,
    Pools,
    ReplyError,
    RetryPolicy,
    StreamNotFound,
    Swapped,
    TimedOut,
    Unsendable,
)
from penstock.clients.felix.connection import quic_settings
from penstock.clients.felix.errors import error_from_text
from penstock.clients.felix.options import server_address
from penstock.clients.felix.request_stream import OFFERED
from penstock.transport.quic.errors import ConnectFailed
from penstock.wire.felix import messages as m
from penstock.wire.felix.codec.binary import Batch
from penstock.wire.felix.features import ERROR_CODES
from penstock.wire.felix.frames import frame

ONE_STREAM = Pools(publish_streams=1, cache_streams=1)
QUICK = RetryPolicy(attempts=3, base=0.0)


def client(server: ScriptedServer, **options: Any) -> AsyncFelixClient:
    given = {"connector": server.connect, "pools": ONE_STREAM, "retry": QUICK, "timeout": 5.0, **options}
    return AsyncFelixClient("broker:1", **given)


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  (nothing else would tell)
        await asyncio.sleep(0)


async def turns(count: int = 20) -> None:
    """Let everything happen that can."""
    for _ in range(count):
        await asyncio.sleep(0)


# -- publishing


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({}, [Batch, Batch]),
        ({"encoding": "json"}, [m.Publish, m.PublishBatch]),
        ({"dialect": "document"}, [m.Publish, m.PublishBatch]),
    ],
)
def test_what_is_published_is_stored_when_it_returns(options: dict[str, Any], kinds: list[type]) -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, tenant="acme", namespace="prod", **options) as felix:
            await felix.publish("visits", b"one")
            await felix.publish_many("visits", [b"two", b"three"], namespace="test")
        assert server.logs == {"visits": [b"one", b"two", b"three"]}
        sent = [request for request in server.requests if not isinstance(request, m.Auth)]
        assert [type(request) for request in sent] == kinds
        assert [request.namespace for request in sent] == ["prod", "test"]
        assert {getattr(request, "tenant", None) or request.tenant_id for request in sent} == {"acme"}

    run(main())


def test_a_server_that_does_not_negotiate_gets_json() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.flags = None
        async with client(server) as felix:
            await felix.publish("visits", b"one")
        assert len(server.received(m.Publish)) == 1

    run(main())


def test_publishes_do_not_wait_for_each_other_and_keep_their_order() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server) as felix:
            await felix.connect()
            server.held = True
            under_way = [asyncio.create_task(felix.publish("visits", b"%d" % number)) for number in range(100)]
            await until(lambda: len(server.received(Batch)) == 100)
            assert not any(task.done() for task in under_way)
            server.release(40)
            await turns()
            assert [task.done() for task in under_way] == [True] * 40 + [False] * 60
            server.release()
            await asyncio.gather(*under_way)
        assert server.logs["visits"] == [b"%d" % number for number in range(100)]
        assert felix.connections == 1

    run(main())


def test_no_more_than_the_window_is_under_way_and_who_waits_is_let_in_as_he_came() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, limits=Limits(window=5000)) as felix:
            await felix.connect()
            server.held = True
            under_way = [asyncio.create_task(felix.publish("v", b"%04d" % at + bytes(1000))) for at in range(20)]
            await turns()
            assert len(server.received(Batch)) == 5
            under_way[6].cancel()  # one that waits
            while len(server.received(Batch)) < 19:
                sent = len(server.received(Batch))
                server.release(1)
                await turns()
                assert len(server.received(Batch)) == sent + 1
            server.release()
            done = await asyncio.gather(*under_way, return_exceptions=True)
        assert [number for number, outcome in enumerate(done) if outcome is not None] == [6]
        stored = [int(payload[:4]) for payload in server.logs["v"]]
        assert stored == [number for number in range(20) if number != 6]

    run(main())


def test_one_that_gives_up_when_it_is_let_in_does_not_keep_the_others_out() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, limits=Limits(window=100)) as felix:
            await felix.connect()
            server.held = True
            first, second, third = [asyncio.create_task(felix.publish("v", bytes(100))) for _ in range(3)]
            await until(lambda: server.replies)
            await turns()
            server.release()
            await asyncio.sleep(0)  # now the second is let in, and has not run yet
            assert len(server.received(Batch)) == 1
            second.cancel()
            server.held = False
            await asyncio.gather(first, third)
            with pytest.raises(asyncio.CancelledError):
                await second

    run(main())


def test_a_newcomer_does_not_overtake_the_one_who_is_let_in() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, limits=Limits(window=100)) as felix:
            await felix.connect()
            server.held = True
            first, second = [asyncio.create_task(felix.publish("v", b"%d" % at + bytes(100))) for at in range(2)]
            await until(lambda: server.replies)
            await turns()
            server.held = False
            server.release()
            third = asyncio.create_task(felix.publish("v", b"2"))  # has its turn right after the reply has come
            await asyncio.gather(first, second, third)
        assert [payload[:1] for payload in server.logs["v"]] == [b"0", b"1", b"2"]

    run(main())


def test_one_that_cannot_be_sent_when_it_is_let_in_does_not_keep_the_others_out() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, limits=Limits(window=100, frame=1000)) as felix:
            await felix.connect()
            server.held = True
            first, second, third = [asyncio.create_task(felix.publish("v", bytes(n))) for n in (100, 2000, 100)]
            await until(lambda: server.replies)
            await turns()
            server.held = False
            server.release()
            await asyncio.gather(first, third)
            with pytest.raises(Unsendable):
                await second

    run(main())


def test_a_batch_larger_than_the_window_goes_alone_and_one_larger_than_a_frame_not_at_all() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, limits=Limits(window=100, frame=4096)) as felix:
            await felix.publish("visits", bytes(3000))
            with pytest.raises(Unsendable, match="do not fit a frame of 4096"):
                await felix.publish("visits", bytes(5000))
            with pytest.raises(Unsendable, match="70000 bytes"):
                await felix.publish("v" * 70000, b"")
            for work in (
                felix.publish("\ud800", b""),
                felix.publish("visits", b"", namespace="\ud800"),
                felix.publish_nowait("visits", b"", namespace=""),
                felix.cache_put("\ud800", b""),
                felix.cache_get("key", cache="\ud800"),
            ):
                with pytest.raises(Unsendable, match=r"not text|0 bytes"):
                    await work
            await felix.publish("visits", b"after")
        assert [len(payload) for payload in server.logs["visits"]] == [3000, 5]

    run(main())


@pytest.mark.parametrize("dialect", ["original", "document"])
def test_what_is_not_acknowledged_waits_only_for_room(dialect: str) -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, dialect=dialect) as felix:
            await felix.connect()
            server.mute = True
            await felix.publish_nowait("visits", b"one", b"two")
            assert server.logs["visits"] == [b"one", b"two"]
            stream = server.connections[0].streams[0]
            stream.congested = True
            waiting = asyncio.create_task(felix.publish_nowait("visits", b"three"))
            await turns()
            assert not waiting.done()
            stream.congested = False
            stream.reader.drained()
            await waiting
        assert server.logs["visits"] == [b"one", b"two", b"three"]

    run(main())


def test_a_refused_publish_without_acknowledgement_is_not_taken_for_another(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.refusals["nowhere"] = "stream not found: tenant=default namespace=default stream=nowhere"
        async with client(server, dialect="document") as felix:
            await felix.publish_nowait("nowhere", b"lost")
            await felix.publish("visits", b"kept")

    run(main())
    assert "stream=nowhere" in caplog.text


@pytest.mark.parametrize("encoding", ["binary", "json"])
def test_an_error_is_that_of_its_publish_alone(encoding: str) -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.refusals = {"nowhere": "stream not found: tenant=t", "secret": "forbidden"}
        async with client(server, encoding=encoding) as felix:
            done = await asyncio.gather(
                *[felix.publish(stream, b"x") for stream in ("here", "nowhere", "here", "secret")],
                return_exceptions=True,
            )
        assert [type(outcome) for outcome in done] == [type(None), StreamNotFound, type(None), Forbidden]

    run(main())


def test_batches_are_pipelined_within_the_window() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server) as felix:
            await felix.connect()
            server.held = True
            batches = ([b"%d" % number, b"x"] for number in range(10))
            under_way = asyncio.create_task(felix.publish_batches("visits", batches, window=4))
            await turns()
            assert len(server.received(Batch)) == 4
            server.held = False
            server.release()
            assert await under_way == 10
        assert server.logs["visits"][::2] == [b"%d" % number for number in range(10)]

    run(main())


def test_the_first_failure_stops_a_pipeline_which_tells_what_became_of_each() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server) as felix:
            await felix.connect()
            server.held = True
            under_way = asyncio.create_task(felix.publish_batches("visits", [[b"x"]] * 10, window=4))
            await turns()
            server.refusals["visits"] = "server overloaded"
            server.release(2)
            await turns()
            server.release()
            await turns()
            server.release()
            with pytest.raises(PipelineError, match="2 of 6 batches") as caught:
                await under_way
        assert [type(result) for result in caught.value.results] == [type(None)] * 4 + [Overloaded] * 2

    run(main())


def test_a_publish_whose_reply_is_lost_is_not_repeated() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server) as felix:
            await felix.connect()
            server.held = True
            under_way = asyncio.create_task(felix.publish("visits", b"once"))
            await until(lambda: server.replies)
            server.cut()
            with pytest.raises(OutcomeUnknown, match=r"may be stored, or not.*cut"):
                await under_way
            server.held = False
            await felix.publish("visits", b"twice")
            assert felix.connections == 2
        assert server.logs["visits"] == [b"once", b"twice"]

    run(main())


def test_a_reply_may_follow_on_a_stream_that_takes_no_more() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, timeout=60) as felix:
            await felix.connect()
            server.held = True
            answered, unanswered = [asyncio.create_task(felix.publish("v", b"x")) for _ in range(2)]
            await until(lambda: len(server.replies) == 2)
            server.connections[0].streams[0].reader.refused(0)
            server.release(1)
            await answered
            server.held = False
            await felix.publish("v", b"by another stream")
            assert len(server.connections[0].streams) == 2
            server.cut()
            with pytest.raises(OutcomeUnknown):
                await unanswered

    run(main())


def test_those_who_wait_for_room_go_on_by_another_connection() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, limits=Limits(window=100)) as felix:
            await felix.connect()
            server.held = True
            first, second = [asyncio.create_task(felix.publish("v", bytes(100))) for _ in range(2)]
            await turns()
            server.held = False
            server.cut()
            with pytest.raises(OutcomeUnknown):
                await first
            await second
        assert felix.connections == 2

    run(main())


def test_a_reply_that_does_not_come_in_time_ends_the_stream_and_not_the_connection() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, timeout=0.05) as felix:
            await felix.connect()
            server.mute = True
            with pytest.raises(TimedOut, match=r"may be stored, or not: no reply in 0\.05 seconds"):
                await felix.publish("visits", b"late")
            (stream,) = server.connections[0].streams
            assert stream.codes == {"reset": 0, "refused": 0}
            server.mute = False
            await felix.publish("visits", b"in time")
            assert felix.connections == 1
            assert len(server.connections[0].streams) == 2

    run(main())


def test_room_that_does_not_come_in_time() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, timeout=0.05) as felix:
            await felix.connect()
            server.connections[0].streams[0].congested = True
            with pytest.raises(TimedOut, match="nothing was sent"):
                await felix.publish_nowait("visits", b"x")
            server.connections[0].streams[0].congested = False
            await felix.publish("visits", b"y")
        assert server.logs["visits"] == [b"y"]

    run(main())


def test_a_cancelled_publish_leaves_the_replies_to_the_others() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, dialect="document") as felix:
            await felix.connect()
            server.held = True
            server.refusals["nowhere"] = "stream not found: x"
            tasks = [asyncio.create_task(felix.publish(stream, b"x")) for stream in ("a", "a", "nowhere")]
            await turns()
            tasks[1].cancel()
            server.release()
            done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in done] == [type(None), asyncio.CancelledError, StreamNotFound]

    run(main())


def test_streams_share_the_publishing_and_one_stream_keeps_to_one() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, pools=Pools(publish_connections=2, publish_streams=2)) as felix:
            for number in range(40):
                await felix.publish(f"stream-{number % 10}", b"%d" % number)
            assert len(server.connections) == 2
            assert [len(connection.streams) for connection in server.connections] == [2, 2]
        assert {len(streams_used) for streams_used in server.streams_used.values()} == {1}
        for number in range(10):
            assert server.logs[f"stream-{number}"] == [b"%d" % (number + 10 * turn) for turn in range(4)]

    run(main())


# -- connections


def test_a_key_is_not_sent_to_a_server_that_would_ignore_it() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.flags = 0x3F
        async with client(server) as felix:
            with pytest.raises(Unsendable, match="too old for keys"):
                await felix.publish("visits", b"x", key=b"k")
            assert await felix.publish("visits", b"x") is None

    run(main())


def test_every_stream_says_who_we_are_with_a_fresh_token() -> None:
    async def main() -> None:
        server = ScriptedServer()
        tokens = iter(["first", "second"])
        async with client(server, tenant="acme", token=lambda: next(tokens)) as felix:
            await felix.publish("visits", b"x")
            await felix.cache_get("key")
        assert server.received(m.Auth) == [m.Auth("acme", token, OFFERED, ERROR_CODES) for token in ("first", "second")]

    run(main())


def test_a_refused_login_fails_at_once() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.auth_error = "auth failed"
        async with client(server) as felix:
            for work in (felix.connect(), felix.publish("v", b"x"), felix.cache_get("k")):
                with pytest.raises(AuthenticationFailed, match="auth failed"):
                    await work
            with pytest.raises(AuthenticationFailed):
                await felix.subscribe("v").next()
        assert len(server.received(m.Auth)) == 4  # none is repeated
        assert server.connects == 3

    run(main())


def test_connecting_is_tried_again_with_pauses() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.failures.extend([ConnectFailed("refused"), OSError("no route")])
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)

        retry = RetryPolicy(attempts=3, base=1.0, random=lambda: 1.0)
        async with client(server, retry=retry, sleep=sleep) as felix:
            await asyncio.gather(*[felix.publish("v", b"x") for _ in range(5)])
        assert pauses == [1.0, 2.0]
        assert server.connects == 3

    run(main())


def test_everybody_who_waits_for_a_connection_shares_its_failure() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.failures.extend([ConnectFailed("broker:1: refused")] * 3)
        async with client(server) as felix:
            done = await asyncio.gather(*[felix.publish("v", b"x") for _ in range(9)], return_exceptions=True)
            assert [type(outcome) for outcome in done] == [ConnectionFailed] * 9
            assert "refused" in str(done[0])
            assert server.connects == 3
            await felix.publish("v", b"x")

    run(main())


def test_a_wrong_certificate_is_not_tried_again() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.failures.append(CertificateRefused("wrong"))
        async with client(server) as felix:
            with pytest.raises(CertificateRefused):
                await felix.connect()
        assert server.connects == 1

    run(main())


def test_a_server_that_does_not_answer_at_all() -> None:
    async def main() -> None:
        async def connect(*_: object) -> Any:
            await asyncio.sleep(100)

        async with client(ScriptedServer(), connector=connect, timeout=0.02) as felix:
            with pytest.raises(ConnectionFailed, match=r"No connection to broker:1: no answer in 0\.02 seconds"):
                await felix.connect()

    run(main())


def test_no_more_streams_are_allowed() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.streams = 0
        async with client(server) as felix:
            with pytest.raises(ConnectionFailed, match="allows no more streams"):
                await felix.publish("v", b"x")

    run(main())


@pytest.mark.parametrize(
    "nonsense", [b"HTTP/1.1 400 Bad Request\r\n\r\n", frame(b"{}"), frame(b"\x00", 0x10), frame(b'{"type":"ok"}') * 3]
)
def test_replies_that_are_none_end_the_stream(nonsense: bytes) -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server) as felix:
            await felix.connect()
            server.mute = True
            under_way = [asyncio.create_task(felix.publish("v", b"x")) for _ in range(2)]
            await turns()
            (stream,) = server.connections[0].streams
            stream.say(nonsense)
            done = await asyncio.gather(*under_way, return_exceptions=True)
            assert isinstance(done[1], BadReply) or (nonsense.startswith(b"FLX1") and done == [None, None])
            assert stream.codes == {"reset": 0, "refused": 0}
            server.mute = False
            await felix.publish("v", b"y")

    run(main())


def test_closing_waits_for_what_is_under_way() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.answers_ends = False
        felix = client(server)
        await felix.connect()
        server.held = True
        publishing = asyncio.create_task(felix.publish("v", b"x"))
        await until(lambda: server.replies)
        closing = asyncio.create_task(felix.close())
        await turns()
        (stream,) = server.connections[0].streams
        assert stream.finished and not closing.done() and not server.connections[0].closed
        server.release()
        stream.end()
        await publishing
        await closing
        assert server.connections[0].closed
        for work in (felix.publish("v", b"x"), felix.cache_put("k", b""), felix.connect()):
            with pytest.raises(ClientClosed):
                await work
        with pytest.raises(ClientClosed):
            felix.subscribe("v")
        await felix.close()

    run(main())


def test_closing_does_not_wait_for_ever() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.answers_ends = False
        felix = client(server, timeout=0.05)
        await felix.connect()
        await felix.close()
        assert server.connections[0].closed
        assert server.connections[0].streams[0].codes == {"reset": 0, "refused": 0}

    run(main())


def test_a_connection_that_comes_too_late_is_closed() -> None:
    async def main() -> None:
        server = ScriptedServer()
        gate = asyncio.Event()

        async def connect(*arguments: Any) -> Any:
            await gate.wait()
            return await server.connect(*arguments)

        felix = client(server, connector=connect)
        late = asyncio.create_task(felix.publish("v", b"x"))
        await turns()
        await felix.close()
        gate.set()
        with pytest.raises(ClientClosed):
            await late
        assert [connection.closed for connection in server.connections] == [True]

    run(main())


# -- the cache


@pytest.mark.parametrize("dialect", ["original", "document"])
def test_all_that_a_cache_can_do(dialect: str) -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, dialect=dialect, tenant="acme", namespace="prod") as felix:
            assert await felix.cache_get("key") is None
            await felix.cache_put("key", b"value", 1500, cache="primary")
            assert await felix.cache_get("key") == b"value"
            assert await felix.cache_compare_and_set("key", b"other", b"new") == Swapped(False, b"value")
            assert await felix.cache_compare_and_set("key", b"value", b"new") == Swapped(True, b"new")
            assert await felix.cache_delete("key") is True
            assert await felix.cache_delete("key") is False
            assert await felix.cache_increment("count", 5) == 5
            assert await felix.cache_increment("count", -7) == -2
            sessions = felix.cache("sessions", namespace="web")
            await sessions.put("a", b"b")
            assert await sessions.get("a") == b"b"
        first = server.received(m.CachePut)[0]
        assert (first.tenant_id, first.namespace, first.cache, first.ttl_ms) == ("acme", "prod", "primary", 1500)
        last = server.received(m.CachePut)[-1]
        assert (last.tenant_id, last.namespace, last.cache, last.ttl_ms) == ("acme", "web", "sessions", None)

    run(main())


def test_many_ask_the_cache_at_once_over_few_streams() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.cache = {str(number): b"%d" % number for number in range(200)}
        async with client(server, pools=Pools(cache_connections=2, cache_streams=3)) as felix:
            found = await asyncio.gather(*[felix.cache_get(str(number)) for number in range(200)])
            assert found == [b"%d" % number for number in range(200)]
            assert [len(connection.streams) for connection in server.connections] == [3, 3]

    run(main())


def test_replies_in_another_order_are_matched_by_their_ids() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.cache = {"a": b"A", "b": b"B", "c": b"C"}
        async with client(server) as felix:
            await felix.cache_get("a")
            server.held = True
            under_way = [asyncio.create_task(felix.cache_get(key)) for key in "abc"]
            await until(lambda: len(server.replies) == 3)
            server.replies.rotate(1)
            server.release()
            assert await asyncio.gather(*under_way) == [b"A", b"B", b"C"]

    run(main())


def test_reads_are_sent_again_and_changes_are_not() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.cache["key"] = b"value"
        async with client(server) as felix:
            await felix.cache_get("key")
            server.held = True
            reading = asyncio.create_task(felix.cache_get("key"))
            writing = asyncio.create_task(felix.cache_increment("count"))
            await until(lambda: len(server.replies) == 2)
            server.held = False
            server.cut()
            assert await reading == b"value"
            with pytest.raises(OutcomeUnknown, match="may be changed, or not"):
                await writing
        assert server.cache["count"] == b"1"

    run(main())


def test_a_cache_that_is_lost_again_and_again() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.held = True
        async with client(server) as felix:
            reading = asyncio.create_task(felix.cache_get("key"))
            for _ in range(3):
                await until(lambda: server.replies)
                server.replies.clear()
                server.cut()
            with pytest.raises(ConnectionFailed, match="lost 3 times"):
                await reading

    run(main())


def test_an_error_of_the_cache() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.refusals["key"] = "the value is not a number"
        async with client(server) as felix:
            with pytest.raises(ReplyError, match="not a number"):
                await felix.cache_increment("key")
            await felix.cache_put("other", b"")

    run(main())


# -- options


@pytest.mark.parametrize(
    ("server", "options", "complaint"),
    [
        ("127.0.0.1", {}, "fingerprint=.*ca=.*insecure=True"),
        ("localhost:1", {}, "no public authority"),
        ("[::1]:5000", {}, "no public authority"),
        ("broker", {"insecure": True, "ca": "x.pem"}, "exclude each other"),
        ("broker", {"fingerprint": "abc"}, "64 hex digits"),
        ("broker:0", {}, "no address"),
        ("::1", {}, "no address"),
        ("broker", {"dialect": "seed"}, "original or document"),
        ("broker", {"encoding": "xml"}, "binary or json"),
        ("broker", {"dialect": "document", "token": "t"}, "no tokens"),
        ("broker", {"timeout": 0}, "above 0"),
        ("broker", {"ca": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
    ],
)
def test_what_cannot_be_meant_is_refused(server: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        AsyncFelixClient(server, **options)
    with pytest.raises(ValueError, match=complaint):
        FelixClient(server, **options)


def test_pools_and_limits_have_bounds() -> None:
    for wrong in ({"publish_streams": 0}, {"cache_streams": 0}, {"event_connections": 0}):
        with pytest.raises(ValueError, match="at least one"):
            Pools(**wrong)
    with pytest.raises(ValueError, match="above 0"):
        Limits(window=0)


def test_addresses() -> None:
    assert str(server_address("broker")) == "broker:5000"
    assert str(server_address("[::1]:7")) == "[::1]:7"
    assert (
        server_address("127.0.0.2").loopback
        and server_address("localhost").loopback
        and not server_address("broker").loopback
    )


def test_settings_of_the_transport() -> None:
    async def main() -> None:
        server = ScriptedServer()
        digits = "AB" * 32
        async with client(server, fingerprint=f"sha256:{digits}", server_name="felix", idle=6) as felix:
            await felix.connect()
        assert server.options is not None
        quic = quic_settings(server.options)
        assert (quic.fingerprint, quic.server_name, quic.verify) == (digits.lower(), "felix", True)
        assert (quic.idle_seconds, quic.keep_alive_seconds) == (6, 2)

    run(main())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("auth required", AuthenticationFailed),
        ("forbidden", Forbidden),
        ("unauthorized: nobody may write", Forbidden),
        ("tenant mismatch", Forbidden),
        ("stream not found: tenant=a namespace=b stream=c", StreamNotFound),
        ("publish queue full", Overloaded),
        ("something else", ReplyError),
    ],
)
def test_texts_become_exceptions(text: str, kind: type[ReplyError]) -> None:
    assert type(error_from_text(text)) is kind
    assert error_from_text(text).message == text


# -- the blocking client


def blocking(server: ScriptedServer, **options: Any) -> FelixClient:
    return FelixClient("broker:1", connector=server.connect, retry=QUICK, timeout=5.0, **options)


def test_the_blocking_client_has_the_same_methods() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(AsyncFelixClient) - public(FelixClient) == {"cache"}
    assert public(FelixClient) <= public(AsyncFelixClient)


def test_the_blocking_client_does_it_all() -> None:
    server = ScriptedServer()
    with blocking(server) as felix:
        felix.connect()
        felix.publish("visits", b"one")
        felix.publish_many("visits", [b"two", b"three"])
        assert felix.publish_batches("visits", [[b"four"], [b"five", b"six"]]) == 2
        felix.publish_nowait("visits", b"seven")
        felix.cache_put("key", b"value")
        assert felix.cache_get("key") == b"value"
        assert felix.cache_compare_and_set("key", b"value", b"5").stored
        assert felix.cache_increment("key") == 6
        assert felix.cache_delete("key")
        assert felix.connections == 2
    assert server.logs["visits"] == [b"one", b"two", b"three", b"four", b"five", b"six", b"seven"]
    assert all(connection.closed for connection in server.connections)
    with pytest.raises(ClientClosed):
        felix.publish("visits", b"late")
    felix.close()


def test_threads_share_the_blocking_client() -> None:
    server = ScriptedServer()
    with blocking(server) as felix:

        def work(name: str) -> None:
            for number in range(20):
                felix.publish(name, b"%d" % number)

        threads = [threading.Thread(target=work, args=(f"thread-{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert server.logs == {f"thread-{number}": [b"%d" % at for at in range(20)] for number in range(4)}


def test_a_blocking_client_that_was_never_used_has_nothing_to_close() -> None:
    server = ScriptedServer()
    with blocking(server):
        pass
    assert server.connects == 0


def test_errors_of_the_blocking_client() -> None:
    server = ScriptedServer()
    server.refusals["nowhere"] = "stream not found: x"
    with blocking(server) as felix, pytest.raises(StreamNotFound):
        felix.publish("nowhere", b"x")


def test_whoever_waits_for_the_blocking_client_may_be_closed_by_another_thread() -> None:
    server = ScriptedServer()
    felix = blocking(server)
    failures: list[ClientClosed] = []

    def work() -> None:
        try:
            felix.subscribe("visits").next()
        except ClientClosed as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not server.subscribers:
        thread.join(0.005)
    felix.close()
    thread.join(5)
    assert not thread.is_alive()
    assert len(failures) <= 1  # or else there was no event


def test_closing_the_blocking_client_ends_what_cannot_be_finished() -> None:
    connecting = threading.Event()
    failures: list[ClientClosed] = []

    async def connect(*_: object) -> Any:
        connecting.set()
        await asyncio.sleep(100)

    felix = FelixClient("broker:1", connector=connect)

    def work() -> None:
        with pytest.raises(ClientClosed) as caught:
            felix.publish("visits", b"x")
        failures.append(caught.value)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    connecting.wait(5)
    felix.close()
    thread.join(5)
    assert len(failures) == 1
