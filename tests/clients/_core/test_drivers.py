"""Both drivers against a server on real sockets: requests, procedures, pushes, and connections that do not hold."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.clients._core.echo import AsyncClient, Client, EchoServer, Refused, echo, store
from tests.clients.conftest import MakeDriver, Tls
from tests.clients.driver import Driver

from penstock.clients._core.errors import BadReply, ConnectionFailed, OutcomeUnknown, TimedOut, Unsendable
from penstock.retry import RetryPolicy

Connect = Callable[..., Driver]
END = ConnectionResetError  # of the connection, instead of a reply

both = pytest.mark.parametrize("numbered", [False, True], ids=["ordered", "numbered"])


@pytest.fixture
def server() -> Iterator[EchoServer]:
    with EchoServer() as running:
        yield running


@pytest.fixture
def connect(make_driver: MakeDriver) -> Connect:
    return partial(make_driver, Client, AsyncClient)


# -- requests


@both
def test_a_request(server: EchoServer, connect: Connect, numbered: bool) -> None:
    client = connect(server.port, numbered=numbered)
    assert [client.echo("one"), client.store("two"), client.call(echo("three"))] == ["one", "two", "three"]
    assert (server.connections, client.connections, client.slept) == (1, 1, [])


@both
def test_requests_that_go_out_together(server: EchoServer, connect: Connect, numbered: bool) -> None:
    server.hold = 3
    server.replies.extend(["a", "!no", "c"])
    client = connect(server.port, numbered=numbered)
    outcomes = client.pipeline([echo("1"), store("2"), echo("3")])
    assert (outcomes[0], outcomes[2]) == ("a", "c")
    assert isinstance(outcomes[1], Refused)
    assert client.pipeline([]) == []


@both
def test_an_error_reply_is_raised(server: EchoServer, connect: Connect, numbered: bool) -> None:
    client = connect(server.port, numbered=numbered)
    client.echo("first")
    server.replies.append("!not so")
    with pytest.raises(Refused, match="not so"):
        client.echo("x")
    assert client.echo("y") == "y"
    assert server.connections == 1


def test_what_cannot_be_sent_needs_no_connection(server: EchoServer, connect: Connect) -> None:
    client = connect(server.port)
    with pytest.raises(Unsendable):
        client.echo("two\nlines")
    with pytest.raises(Unsendable):
        client.pipeline([echo("one"), echo("two\nlines")])
    assert server.connections == 0
    with pytest.raises(Unsendable):
        connect(server.port, numbered=True).echo("two\nlines")
    assert server.lines == []


def test_megabytes_in_both_directions(server: EchoServer, connect: Connect) -> None:
    """More than the buffers in between hold: who sends must receive meanwhile."""
    client = connect(server.port)
    texts = [letter * 1_000_000 for letter in "abcdefgh"]
    assert client.pipeline([echo(text) for text in texts]) == texts


@both
def test_with_busy_polling(server: EchoServer, connect: Connect, numbered: bool) -> None:
    client = connect(server.port, numbered=numbered, busy_poll=0.0001)
    assert [client.echo(f"{i}") for i in range(300)] == [f"{i}" for i in range(300)]


# -- connections that do not hold


@both
def test_an_idempotent_request_is_sent_again(server: EchoServer, connect: Connect, numbered: bool) -> None:
    client = connect(server.port, numbered=numbered)
    client.connect()
    server.replies.extend([END, END])
    assert client.echo("x") == "x"
    assert server.lines == ["x", "x", "x"]
    assert (server.connections, client.connections, client.slept) == (3, 3, [0.5, 1.0])


@both
@pytest.mark.parametrize("connected", [True, False])
def test_attempts_come_to_an_end(server: EchoServer, connect: Connect, numbered: bool, connected: bool) -> None:
    client = connect(server.port, numbered=numbered)
    if connected:
        client.connect()
    server.replies.extend([END] * 3)
    with pytest.raises(ConnectionFailed, match="lost 3 times"):
        client.echo("x")
    assert client.slept == [0.5, 1.0]
    assert client.echo("y") == "y"


@both
def test_what_is_not_idempotent_is_not_sent_again(server: EchoServer, connect: Connect, numbered: bool) -> None:
    client = connect(server.port, numbered=numbered)
    client.connect()
    server.replies.append(END)
    with pytest.raises(OutcomeUnknown):
        client.store("x")
    assert (server.lines, client.slept) == (["x"], [])


@both
def test_a_connection_that_was_closed_while_idle_is_replaced(
    server: EchoServer, connect: Connect, numbered: bool
) -> None:
    client = connect(server.port, numbered=numbered)
    client.echo("x")
    server.drop_connections()
    client.notice()
    assert client.store("y") == "y"
    assert (server.lines, client.slept) == (["x", "y"], [])


@both
def test_nonsense_ends_the_connection(server: EchoServer, connect: Connect, numbered: bool) -> None:
    client = connect(server.port, numbered=numbered)
    server.replies.append("?")
    with pytest.raises(BadReply):
        client.echo("x")
    assert client.echo("y") == "y"
    assert server.connections == 2


def test_a_silent_server_is_left(server: EchoServer, connect: Connect) -> None:
    client = connect(server.port, timeout=0.1)
    server.replies.append(None)
    assert client.echo("x") == "x"
    assert server.connections == 2


def test_a_numbered_request_times_out_alone(server: EchoServer, connect: Connect) -> None:
    client = connect(server.port, numbered=True)
    server.replies.extend([None, "quick"])
    slow, quick = client.pipeline([echo("a", timeout=0.2), echo("b")])
    assert (type(slow), quick) == (TimedOut, "quick")
    assert client.echo("c") == "c"
    assert server.connections == 1


@both
def test_no_server(connect: Connect, closed_port: int, numbered: bool) -> None:
    client = connect(closed_port, numbered=numbered)
    for call in (client.echo, client.store):
        with pytest.raises(ConnectionFailed, match="No connection to 127"):
            call("x")
    assert client.slept == [0.5, 1.0] * 2


def test_the_next_address_is_tried_at_once(server: EchoServer, connect: Connect, closed_port: int) -> None:
    client = connect(closed_port, server.port)
    assert client.store("x") == "x"
    assert client.slept == []


def test_another_server_is_the_leader(server: EchoServer, connect: Connect) -> None:
    with EchoServer() as leader:
        server.replies.append(f"!leader 127.0.0.1:{leader.port}")
        client = connect(server.port, numbered=True)
        assert client.store("x") == "x"
        assert client.store("y") == "y"
        assert (server.lines, leader.lines, client.slept) == (["x"], ["x", "y"], [])


def test_a_closed_client_connects_again(server: EchoServer, connect: Connect) -> None:
    client = connect(server.port)
    client.echo("x")
    client.close()
    server.wait_until_alone()
    assert client.echo("y") == "y"
    assert server.connections == 2


# -- logging in


@both
def test_every_connection_is_logged_in(server: EchoServer, connect: Connect, numbered: bool) -> None:
    client = connect(server.port, numbered=numbered, user="me")
    client.connect()
    server.replies.append(END)
    assert client.echo("x") == "x"
    assert server.lines == ["user me", "x", "user me", "x"]


def test_a_login_that_is_refused_is_not_tried_again(server: EchoServer, connect: Connect) -> None:
    server.login = "!who is that?"
    client = connect(server.port, user="nobody")
    with pytest.raises(Refused, match="who is that"):
        client.echo("x")
    assert (server.lines, server.connections, client.slept) == (["user nobody"], 1, [])


# -- procedures


@both
def test_a_procedure_takes_its_steps(server: EchoServer, connect: Connect, numbered: bool) -> None:
    client = connect(server.port, numbered=numbered)
    assert client.echo_all(["a", "b"], 7.0) == ["a", "b", "a", "b"]
    assert client.slept == [7.0]


def test_a_procedure_goes_on_over_a_reconnect(server: EchoServer, connect: Connect) -> None:
    server.replies.extend(["a", END])
    client = connect(server.port)
    assert client.echo_all(["a", "b"], 7.0) == ["a", "b", "a", "b"]
    assert server.lines == ["a", "b", "b", "a", "b"]
    assert client.slept == [0.5, 7.0]


def test_an_exception_of_a_procedure_is_raised(server: EchoServer, connect: Connect) -> None:
    cleaned_up: list[str] = []
    with pytest.raises(KeyError):
        connect(server.port).broken_off(cleaned_up)
    assert cleaned_up == ["yes"]


def test_an_exception_of_a_step_is_raised_in_the_procedure(connect: Connect, closed_port: int) -> None:
    cleaned_up: list[str] = []
    with pytest.raises(ConnectionFailed):
        connect(closed_port).broken_off(cleaned_up)
    assert cleaned_up == ["yes"]


def test_a_cancelled_procedure_cleans_up(server: EchoServer) -> None:
    cleaned_up: list[str] = []
    server.replies.append(None)

    async def job() -> None:
        async with AsyncClient(server.port) as client:
            task = asyncio.create_task(client.broken_off(cleaned_up))
            await asyncio.to_thread(server.wait_for, lambda: server.lines == ["first"])
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert cleaned_up == ["yes"]

    asyncio.run(job())


# -- pushes


def test_pushes_are_waited_for(server: EchoServer, connect: Connect) -> None:
    client = connect(server.port, numbered=True)
    client.connect()
    assert client.next_event(time.monotonic() + 0.01) is None
    server.push("one", "two")
    assert [client.next_event(), client.next_event()] == ["one", "two"]
    assert client.echo("x") == "x"


def test_waiting_ends_with_the_connection(server: EchoServer, connect: Connect) -> None:
    client = connect(server.port, numbered=True)
    client.echo("x")
    (peer,) = server.peers
    server.loop.call_soon_threadsafe(server.loop.call_later, 0.05, peer.writer.close)
    assert client.next_event(time.monotonic() + 20) is None
    assert client.echo("y") == "y"
    assert server.connections == 2


def test_a_server_that_pushes_nothing_is_probed(server: EchoServer, connect: Connect) -> None:
    client = connect(server.port, numbered=True, keepalive=0.05)
    end = time.monotonic() + 20  # on a busy machine a probe takes long
    while server.lines.count("probe") < 2 and time.monotonic() < end:
        assert client.next_event(time.monotonic() + 0.3) is None
    assert server.lines.count("probe") >= 2
    assert server.connections == 1


def test_a_server_that_does_not_answer_the_probe_is_left(server: EchoServer, connect: Connect) -> None:
    client = connect(server.port, numbered=True, keepalive=0.05, timeout=0.1)
    client.connect()
    server.replies.append(None)
    assert client.next_event(time.monotonic() + 20) is None
    assert client.echo("x") == "x"
    assert server.connections == 2


# -- TLS


@both
def test_tls(tls: Tls, connect: Connect, numbered: bool) -> None:
    with EchoServer(tls.server) as server:
        client = connect(server.port, numbered=numbered, tls=tls.client)
        text = "x" * 500_000
        assert [client.echo("a"), client.echo(text)] == ["a", text]
        stranger = connect(server.port, numbered=numbered, tls=ssl.create_default_context())
        with pytest.raises(ConnectionFailed, match="certificate"):
            stranger.echo("x")
        assert stranger.slept == []


# -- asyncio only


def test_requests_of_many_tasks_go_out_together_in_the_order_of_the_calls(server: EchoServer) -> None:
    async def job() -> None:
        async with AsyncClient(server.port) as client:
            await client.connect()
            texts = [f"{i}" for i in range(50)]
            assert await asyncio.gather(*map(client.echo, texts)) == texts
            assert server.lines == texts

    asyncio.run(job())
    assert len(server.reads) <= 3  # the first by itself, the others in one write


def test_requests_keep_their_order_while_the_client_connects(server: EchoServer) -> None:
    async def job() -> None:
        async with AsyncClient(server.port, user="me") as client:
            texts = [f"{i}" for i in range(50)]
            assert await asyncio.gather(*map(client.store, texts)) == texts
            assert server.lines == ["user me", *texts]

    asyncio.run(job())
    assert server.connections == 1


def test_tasks_that_wait_for_a_connection_share_its_failure(closed_port: int) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    async def job() -> None:
        client = AsyncClient(closed_port, retry=RetryPolicy(attempts=3), sleep=sleep)
        outcomes = await asyncio.gather(*(client.echo("x") for _ in range(10)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionFailed] * 10

    asyncio.run(job())
    assert len(slept) == 2


@both
def test_the_reply_to_a_cancelled_request_is_nobody_elses(server: EchoServer, numbered: bool) -> None:
    server.hold = 2

    async def job() -> None:
        async with AsyncClient(server.port, numbered=numbered) as client:
            task = asyncio.create_task(client.echo("cancelled"))
            await asyncio.to_thread(server.wait_for, lambda: server.lines == ["cancelled"])
            task.cancel()
            assert await client.echo("next") == "next"

    asyncio.run(job())
    assert server.connections == 1


def test_what_was_sent_last_goes_out_before_the_client_closes(server: EchoServer) -> None:
    async def job() -> None:
        async with AsyncClient(server.port) as client:
            await client.echo("first")
            connection = client._driver.connection
            assert connection is not None
            connection.write(b"last\n")

    asyncio.run(job())
    server.wait_for(lambda: server.lines == ["first", "last"])


def test_reading_stops_when_nobody_takes_what_is_pushed(server: EchoServer) -> None:
    async def job() -> None:
        async with AsyncClient(server.port, numbered=True) as client:
            await client.echo("first")
            server.push(*(f"{i}" for i in range(200)))
            requests: Any = client._driver.connection.requests  # type: ignore[union-attr]
            await asyncio.sleep(0.05)
            assert not requests.accepting
            server.push("beyond")
            await asyncio.sleep(0.05)
            assert "beyond" not in requests.events
            assert await client.echo("reply behind it") == "reply behind it"  # who waits has to read
            assert requests.events[-1] == "beyond"

    asyncio.run(job())


# -- methods


@pytest.mark.parametrize(("owner", "waits"), [(Client, False), (AsyncClient, True)])
def test_methods_show_what_they_are_made_of(owner: type, waits: bool) -> None:
    method = owner.echo  # type: ignore[attr-defined]
    assert inspect.iscoroutinefunction(method) == waits
    assert (method.__name__, method.__doc__) == ("echo", "The same text.")
    assert str(inspect.signature(method)) == "(self, text: 'str', *, timeout: 'float | None' = None) -> 'str'"
    listing = owner.echo_all  # type: ignore[attr-defined]
    assert listing.__doc__ == "Several texts together, and again after a pause."
    assert str(inspect.signature(listing)) == "(self, texts: 'Sequence[str]', pause: 'float') -> 'list[str]'"


def test_requests_may_be_made_by_their_specs(server: EchoServer, connect: Connect) -> None:
    assert connect(server.port).call(store("x")) == "x"
