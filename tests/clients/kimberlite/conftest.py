"""For the client's tests: a scripted server, and clients of both kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.clients.kimberlite.driver import Driver
from tests.clients.kimberlite.scripted_server import ScriptedServer


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture(params=["blocking", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect(kind: str) -> Iterator[Callable[..., Driver]]:
    drivers: list[Driver] = []

    def connect(addresses: Any, **options: Any) -> Driver:
        drivers.append(Driver(kind, addresses, **options))
        return drivers[-1]

    yield connect
    for driver in drivers:
        driver.end()
