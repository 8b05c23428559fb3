"""Worker processes and their socket to the broker: real processes, killed for real."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from penstock.broker.errors import TopicNotFound
from penstock.workers import supervisor
from penstock.workers.rpc import Handler, RemoteError, RpcClient, typed
from penstock.workers.supervisor import WorkerProcess, fetch_settings, report_ready


class Request(msgspec.Struct):
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
        return {"ask": typed(Request, self.ask), "refuse": typed(Request, self.refuse)}

    async def ask(self, question: Request) -> Reply:
        await asyncio.sleep(question.seconds)
        self.heard.append(question.text)
        return Reply(question.text.upper())

    async def refuse(self, question: Request) -> Reply:
        if question.text == "bug":
            raise ZeroDivisionError
        raise TopicNotFound(question.text)


def run(test: Callable[[Broker, WorkerProcess], Awaitable[None]], word: str = "hello") -> None:
    async def main() -> None:
        broker = Broker()
        worker = WorkerProcess("test", "tests.workers.test_supervisor", broker.handlers(), Word(word))
        worker.start()
        try:
            assert await worker.ready(20)
            await test(broker, worker)
        finally:
            await worker.stop()
        assert worker.process is None

    asyncio.run(main())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_RESTART_DELAY", 0.05)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))


def test_a_worker_gets_its_settings_asks_and_says_when_it_is_ready() -> None:
    async def test(broker: Broker, worker: WorkerProcess) -> None:
        assert worker.detail == "HELLO"
        assert broker.heard == ["hello"]

    run(test)


def test_answers_come_when_they_are_ready_and_errors_keep_their_kind() -> None:
    async def test(broker: Broker, worker: WorkerProcess) -> None:
        assert worker.detail == "quick slow / TopicNotFound / Internal"
        assert broker.heard == ["quick", "slow"]

    run(test, "errors")


def test_a_worker_that_is_killed_comes_back() -> None:
    async def test(broker: Broker, worker: WorkerProcess) -> None:
        assert worker.process is not None
        first = worker.process.pid
        os.kill(first, signal.SIGKILL)
        await until(lambda: worker.starts == 2)
        assert await worker.ready(20)
        assert worker.process.pid != first
        assert broker.heard == ["hello", "hello"]

    run(test)


def test_a_worker_has_its_own_session_so_that_no_ctrl_c_reaches_it() -> None:
    async def test(_: Broker, worker: WorkerProcess) -> None:
        assert worker.process is not None
        assert os.getsid(worker.process.pid) == worker.process.pid

    run(test)


def test_a_worker_in_the_brokers_session_has_its_own_process_group_so_that_no_ctrl_c_reaches_it() -> None:
    async def test(_: Broker, worker: WorkerProcess) -> None:
        worker.own_session = False
        worker.kill()
        await until(lambda: worker.starts == 2)
        assert await worker.ready(20)
        assert worker.process is not None
        assert os.getsid(worker.process.pid) == os.getsid(0)
        assert os.getpgid(worker.process.pid) == worker.process.pid

    run(test)


IN_A_TERMINAL = """
import os, subprocess, sys, termios
terminal = os.open(os.environ["TERMINAL"], os.O_RDWR)  # the controlling one, since a new session has none
settings = termios.tcgetattr(terminal)
settings[3] |= termios.TOSTOP
termios.tcsetattr(terminal, termios.TCSANOW, settings)
worker = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stderr=terminal, process_group=0)
_, status = os.waitpid(worker.pid, os.WUNTRACED)
worker.kill()
print("stopped" if os.WIFSTOPPED(status) else "went on")
"""


@pytest.mark.parametrize(("worker", "outcome"), [("", "stopped"), ("supervisor.leave_process_group();", "went on")])
def test_a_worker_goes_on_when_it_logs_to_a_terminal_that_stops_background_processes(worker: str, outcome: str) -> None:
    program = f"import os; from penstock.workers import supervisor; {worker} os.write(2, b'a line')"
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", IN_A_TERMINAL, program],
            env={**os.environ, "TERMINAL": os.ttyname(theirs)},
            start_new_session=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout == f"{outcome}\n", done.stderr


def test_a_worker_ends_with_its_socket() -> None:
    async def test(_: Broker, worker: WorkerProcess) -> None:
        assert worker.process is not None
        await worker.stop()
        assert worker.process is None

    run(test)


def _main(client: RpcClient) -> None:
    settings = fetch_settings(client, Word)
    if settings.word == "errors":
        detail = _ask_at_once(client)
    else:
        detail = client.call("ask", Request(settings.word), Reply).text
    report_ready(client, detail)
    signal.pause()


def _ask_at_once(client: RpcClient) -> str:
    from concurrent.futures import ThreadPoolExecutor

    def ask(question: Request) -> str:
        return client.call("ask", question, Reply).text.lower()

    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(ask, Request("slow", 0.3))
        quick = threads.submit(ask, Request("quick"))
        said = f"{quick.result()} {slow.result()}"
    for text in ("nowhere", "bug"):
        try:
            client.call("refuse", Request(text), Reply)
        except RemoteError as error:
            said += f" / {error.kind}"
    return said


if __name__ == "__main__":
    supervisor.leave_process_group()
    _main(RpcClient.inherited(sys.argv[1]))
