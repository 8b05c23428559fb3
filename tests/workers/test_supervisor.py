"""Worker processes and their line to the broker: real processes, killed for real."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from penstock.broker.errors import TopicNotFound
from penstock.workers import supervisor as child_module
from penstock.workers.rpc import Handler, RemoteError, RpcClient, typed
from penstock.workers.supervisor import Nothing, Ready, WorkerProcess, settings_of


class Question(msgspec.Struct):
    text: str
    seconds: float = 0.0


class Reply(msgspec.Struct):
    text: str


class Word(msgspec.Struct):
    word: str


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - of a process, not of this loop
            await asyncio.sleep(0.01)


class Broker:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def handlers(self) -> dict[str, Handler]:
        return {"ask": typed(Question, self.ask), "refuse": typed(Question, self.refuse)}

    async def ask(self, question: Question) -> Reply:
        await asyncio.sleep(question.seconds)
        self.heard.append(question.text)
        return Reply(question.text.upper())

    async def refuse(self, question: Question) -> Reply:
        if question.text == "bug":
            raise ZeroDivisionError
        raise TopicNotFound(question.text)


def run(test: Callable[[Broker, WorkerProcess], Awaitable[None]], word: str = "hello") -> None:
    async def main() -> None:
        broker = Broker()
        child = WorkerProcess("test", "tests.workers.test_supervisor", broker.handlers(), Word(word))
        child.start()
        try:
            assert await child.ready(20)
            await test(broker, child)
        finally:
            await child.stop()
        assert child.process is None

    asyncio.run(main())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "FIRST_PAUSE", 0.05)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))


def test_a_child_gets_its_settings_asks_and_says_when_it_is_ready() -> None:
    async def test(broker: Broker, child: WorkerProcess) -> None:
        assert child.told == "HELLO"
        assert broker.heard == ["hello"]

    run(test)


def test_answers_come_when_they_are_ready_and_errors_keep_their_kind() -> None:
    async def test(broker: Broker, child: WorkerProcess) -> None:
        assert child.told == "quick slow / TopicNotFound / Internal"
        assert broker.heard == ["quick", "slow"]

    run(test, "errors")


def test_a_child_that_is_killed_comes_back() -> None:
    async def test(broker: Broker, child: WorkerProcess) -> None:
        assert child.process is not None
        first = child.process.pid
        os.kill(first, signal.SIGKILL)
        await until(lambda: child.starts == 2)
        assert await child.ready(20)
        assert child.process.pid != first
        assert broker.heard == ["hello", "hello"]

    run(test)


def test_a_child_ends_with_the_line() -> None:
    async def test(_: Broker, child: WorkerProcess) -> None:
        assert child.process is not None
        await child.stop()
        assert child.process is None

    run(test)


def _main(client: RpcClient) -> None:
    settings = settings_of(client, Word)
    assert isinstance(settings, Word)
    if settings.word == "errors":
        told = _ask_at_once(client)
    else:
        told = client.call("ask", Question(settings.word), Reply).text
    client.call("child.ready", Ready(told), Nothing)
    signal.pause()


def _ask_at_once(client: RpcClient) -> str:
    from concurrent.futures import ThreadPoolExecutor

    def ask(question: Question) -> str:
        return client.call("ask", question, Reply).text.lower()

    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(ask, Question("slow", 0.3))
        quick = threads.submit(ask, Question("quick"))
        said = f"{quick.result()} {slow.result()}"
    for text in ("nowhere", "bug"):
        try:
            client.call("refuse", Question(text), Reply)
        except RemoteError as error:
            said += f" / {error.kind}"
    return said


if __name__ == "__main__":
    _main(RpcClient.inherited(sys.argv[1]))
