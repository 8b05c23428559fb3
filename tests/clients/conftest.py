"""For the tests of all clients: both kinds, a port that nobody listens on, and TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from tests.clients.driver import Driver
from tests.transport.certificates import Authority

MakeDriver = Callable[..., Driver]


@pytest.fixture(params=["blocking", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_driver(kind: str) -> Iterator[MakeDriver]:
    """Makes drivers of the two classes of a door, and ends them."""
    drivers: list[Driver] = []

    def make(blocking: type, aio: type, *args: Any, **options: Any) -> Driver:
        drivers.append(Driver(kind, blocking, aio, *args, **options))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.end()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is taken and refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


class Tls(NamedTuple):
    server: ssl.SSLContext
    ca_file: str  # trusts the server

    @property
    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca_file)


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """Both sides of TLS for 127.0.0.1."""
    authority = Authority(tmp_path_factory.mktemp("tls"))
    issued = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.cert, issued.key)
    return Tls(context, authority.path)
