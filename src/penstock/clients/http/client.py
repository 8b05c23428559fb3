"""The clients of the administration API: `Client` blocks, `AsyncClient` runs on asyncio."""

from __future__ import annotations

import asyncio
import ssl
import time
from urllib.parse import urlencode

from penstock.clients._core.address import Address
from penstock.clients._core.addresses import Addresses
from penstock.clients._core.aio import AsyncClientCore, AsyncDriver
from penstock.clients._core.blocking import BlockingClient, BlockingDriver
from penstock.clients._core.channel import ConnectOptions
from penstock.clients.http.binding import HttpBinding
from penstock.retry import RetryPolicy


def _parts(
    host: str,
    port: int,
    authorization: str | None,
    tls: ssl.SSLContext | None,
    timeout: float,
    retry: RetryPolicy | None,
    tenant: str | None,
    namespace: str | None,
) -> tuple[HttpBinding, ConnectOptions]:
    address = Address(host, port)
    options = ConnectOptions(Addresses([address]), tls, timeout, retry or RetryPolicy())
    scope = {name: value for name, value in (("tenant", tenant), ("namespace", namespace)) if value is not None}
    name = "localhost" if address.is_path else str(address)
    return HttpBinding(name, authorization, timeout, urlencode(scope)), options


class Client(BlockingClient):
    """A client for one thread at a time: `call` takes a spec from `requests`. `host` may be the path of a broker's
    admin socket. `authorization` is the value of that header. `tenant` and `namespace` apply to every request; None
    leaves them to the server."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        authorization: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float = 60.0,
        retry: RetryPolicy | None = None,
        tenant: str | None = None,
        namespace: str | None = None,
    ) -> None:
        parts = _parts(host, port, authorization, tls, timeout, retry, tenant, namespace)
        super().__init__(BlockingDriver(*parts, time.sleep))


class AsyncClient(AsyncClientCore):
    """`Client` for the tasks of one event loop."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        authorization: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float = 60.0,
        retry: RetryPolicy | None = None,
        tenant: str | None = None,
        namespace: str | None = None,
    ) -> None:
        parts = _parts(host, port, authorization, tls, timeout, retry, tenant, namespace)
        super().__init__(AsyncDriver(*parts, asyncio.sleep))
