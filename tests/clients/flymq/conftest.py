"""Fixtures: a running server, a faulty proxy to it, and clients of both kinds behind blocking calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from tests.clients.driver import Driver
from tests.clients.flymq.faulty_proxy import FaultyProxy
from tests.clients.flymq.running_server import RunningServer

from penstock.clients.flymq import AsyncClient, AsyncConsumer, AsyncProducer, Client, Consumer, Producer


class FlyMqDriver(Driver):
    """A client of either kind, with its producers and consumers."""

    def __init__(self, kind: str, port: int, **options: Any) -> None:
        super().__init__(kind, Client, AsyncClient, "127.0.0.1", port, **{"timeout": 20.0, **options})

    def producer(self, **options: Any) -> Any:
        return self.make(Producer, AsyncProducer, **options)

    def consumer(self, topics: str | list[str], **options: Any) -> Any:
        return self.make(Consumer, AsyncConsumer, topics, **options)


Connect = Callable[..., FlyMqDriver]


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server without security. Tests share it, and are apart by their topics."""
    with RunningServer(tmp_path_factory.mktemp("flymq")) as server:
        yield server


@pytest.fixture
def proxy(running: RunningServer) -> Iterator[FaultyProxy]:
    with FaultyProxy(running.port) as proxy:
        yield proxy


@pytest.fixture
def connect(kind: str) -> Iterator[Connect]:
    with contextlib.ExitStack() as ending:

        def connect(port: int, **options: Any) -> FlyMqDriver:
            driver = FlyMqDriver(kind, port, **options)
            ending.callback(driver.end)
            return driver

        yield connect


_numbers = count()


@pytest.fixture
def topic() -> str:
    """A name that nobody else uses."""
    return f"topic-{next(_numbers)}"
