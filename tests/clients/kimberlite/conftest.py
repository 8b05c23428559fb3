"""For the client's tests: a scripted server, and clients of both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from tests.clients.conftest import MakeDriver
from tests.clients.kimberlite.scripted_server import ScriptedServer

from penstock.clients.kimberlite import AsyncKimberliteClient, KimberliteClient


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def connect(make_driver: MakeDriver) -> MakeDriver:
    return partial(make_driver, KimberliteClient, AsyncKimberliteClient)
