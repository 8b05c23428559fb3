"""`Channel`: one connection at a time to a server, opened when needed, and reopened when lost. It contains what both
drivers share: procedures to connect, and to send requests with retries."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from penstock.clients._core.addresses import Addresses
from penstock.clients._core.binding import Binding
from penstock.clients._core.connection import Connection
from penstock.clients._core.errors import PenstockError, ReplyError, TimedOut
from penstock.clients._core.procedure import CONNECTED, Open, Procedure, Wait
from penstock.clients._core.requests import RequestBatch, RequestSpec
from penstock.clients._core.retry import RetryState
from penstock.retry import RetryPolicy

C = TypeVar("C", bound=Connection)


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """Options of a connection. `timeout` is how many seconds to wait for a connection, and for a reply. `busy_poll`,
    for blocking clients, is how many seconds to poll for a reply before going to sleep."""

    addresses: Addresses
    tls: ssl.SSLContext | None = None
    timeout: float = 30.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    busy_poll: float = 0.0

    def __post_init__(self) -> None:
        if self.timeout <= 0:
            raise ValueError("timeout must be above 0")


def tls_context(tls: ssl.SSLContext | str | None) -> ssl.SSLContext | None:
    """A TLS context; a path is that of a file with trusted certificates."""
    return ssl.create_default_context(cafile=tls) if isinstance(tls, str) else tls


class Channel(Generic[C]):
    def __init__(self, binding: Binding, options: ConnectOptions) -> None:
        self.binding = binding
        self.options = options
        self.connection: C | None = None  # perhaps lost
        self.connections = 0  # opened so far: if it has changed, per-connection state at the server is gone

    @property
    def ready(self) -> C | None:
        """The connection, if it is writable now: `channel.ready or (yield CONNECTED)` saves a step."""
        raise NotImplementedError

    def call_all(
        self,
        specs: Sequence[RequestSpec[Any]],
        on_connection: Callable[[Connection], None] | None = None,
        attempted: tuple[Connection, RequestBatch] | None = None,
    ) -> Procedure[list[Any]]:
        """Send requests without waiting in between. Returns the result or the error of each, in order. Raises
        Unsendable, and sends nothing, if requests are not numbered and one cannot be encoded. `on_connection` is called
        with every connection on which they are sent. `attempted` is a first attempt that the caller has already
        made."""
        state = RetryState(specs, self.options.retry, self.binding.errors)
        left = state.next()
        while left:
            if attempted is not None:
                (connection, batch), attempted = attempted, None
            else:
                batch = self.binding.batch(left)
                try:
                    connection = self.ready or (yield CONNECTED)
                except PenstockError as error:
                    state.unreachable(error)
                    break
                if on_connection is not None:
                    on_connection(connection)
                connection.send(batch)
                if not batch.is_set:
                    yield Wait(connection, batch)
            pause = state.record(batch)
            if state.redirect is not None:
                self._leave(connection, state.redirect.leader)
                state.redirect = None
            if state.over:
                break
            if pause:
                yield pause
            left = state.next()
        return state.outcomes

    def open(self) -> Procedure[C]:
        """A new connection to the first reachable server, in as many attempts as the policy allows."""
        options, errors = self.options, self.binding.errors
        attempt = 0
        while True:
            for address in options.addresses.ordered():
                try:
                    connection: C = yield Open(address)
                    self.connections += 1
                    return connection
                except (OSError, ReplyError, TimedOut) as error:
                    options.addresses.failed(address)
                    failure: Exception = error
                    if isinstance(error, ReplyError) and not error.retryable:
                        raise
                    if isinstance(error, ssl.SSLCertVerificationError):
                        raise errors.connection_failed(f"No connection to {address}: {error}") from error
            attempt += 1
            if attempt >= options.retry.attempts:
                raise errors.connection_failed(f"No connection to {address}: {failure}") from failure
            yield options.retry.delay(attempt - 1)

    def _leave(self, connection: Connection, leader: str | None) -> None:
        """Follow a redirect: the server is not the leader, so the next connection goes to another."""
        self.options.addresses.redirect(leader, connection.address)
        if self.connection is connection:
            self.connection = None
        connection.retire()
