"""The clients of FlyMQ: `Client` blocks, `AsyncClient` runs on asyncio. Their methods are defined once."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from penstock.clients._core.address import Address
from penstock.clients._core.addresses import Addresses
from penstock.clients._core.aio import AsyncClientCore, AsyncDriver
from penstock.clients._core.blocking import BlockingClient, BlockingDriver
from penstock.clients._core.channel import ConnectOptions, tls_context
from penstock.clients._core.methods import procedure_method, request_method
from penstock.clients._core.procedure import Procedure
from penstock.clients._core.requests import result_of
from penstock.clients.flymq import produce_pipeline, requests
from penstock.clients.flymq.binding import FlyMqBinding
from penstock.clients.flymq.transaction import AsyncTransaction, Transaction
from penstock.retry import RetryPolicy
from penstock.wire.flymq import messages as m

Sleep = TypeVar("Sleep")  # a function that sleeps, or a coroutine function


class FlyMqMethods(Generic[Sleep]):
    """The methods of both clients: one for each opcode, as in `requests`, and some that take several requests."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9092,
        *,
        username: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | str | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        sleep: Sleep | None = None,
        scope: tuple[str, str] | None = None,
    ) -> None:
        """`scope` is the tenant and the namespace of all requests: an extension."""
        if (username is None) != (password is None):
            raise ValueError("a user name and a password go together")
        credentials = None if username is None or password is None else (username, password)
        self._connect_options = ConnectOptions(
            Addresses([Address(host, port)]), tls_context(tls), timeout, retry or RetryPolicy()
        )
        self._binding = FlyMqBinding(credentials, timeout, scope)
        self._start(sleep)

    def _start(self, sleep: Sleep | None) -> None:
        """Make the driver."""
        raise NotImplementedError

    def retry_delay(self, retry: int) -> float:
        """Seconds to wait before retry number `retry`, counted from 0."""
        return self._connect_options.retry.delay(retry)

    @procedure_method
    def authenticate(self, username: str, password: str) -> Procedure[m.AuthResult]:
        """Log in, now and after every reconnect. Raises LoginFailed if refused; the previous login then stays."""
        (outcome,) = yield [requests.authenticate(username, password)]
        result: m.AuthResult = result_of(outcome)
        self._binding.credentials = (username, password)
        return result

    @procedure_method
    def use_scope(self, tenant: str, namespace: str = "default") -> Procedure[None]:
        """Use a tenant and a namespace for all later requests, also after a reconnect."""
        (outcome,) = yield [requests.use_scope(tenant, namespace)]
        result_of(outcome)
        self._binding.scope = (tenant, namespace)

    produce_many = procedure_method(produce_pipeline.produce_many)

    produce = request_method(requests.produce)
    produce_batch = request_method(requests.produce_batch)
    produce_records = request_method(requests.produce_records)
    produce_delayed = request_method(requests.produce_delayed)
    cancel_delayed = request_method(requests.cancel_delayed)
    produce_with_ttl = request_method(requests.produce_with_ttl)
    produce_with_schema = request_method(requests.produce_with_schema)
    consume = request_method(requests.consume)
    consume_zero_copy = request_method(requests.consume_zero_copy)
    fetch = request_method(requests.fetch)
    fetch_binary = request_method(requests.fetch_binary)
    fetch_records = request_method(requests.fetch_records)
    create_topic = request_method(requests.create_topic)
    delete_topic = request_method(requests.delete_topic)
    list_topics = request_method(requests.list_topics)
    metadata = request_method(requests.metadata)
    subscribe = request_method(requests.subscribe)
    commit = request_method(requests.commit)
    get_offset = request_method(requests.get_offset)
    reset_offset = request_method(requests.reset_offset)
    seek_to_timestamp = request_method(requests.seek_to_timestamp)
    get_lag = request_method(requests.get_lag)
    list_groups = request_method(requests.list_groups)
    describe_group = request_method(requests.describe_group)
    delete_group = request_method(requests.delete_group)
    register_schema = request_method(requests.register_schema)
    get_schema = request_method(requests.get_schema)
    list_schemas = request_method(requests.list_schemas)
    validate_schema = request_method(requests.validate_schema)
    delete_schema = request_method(requests.delete_schema)
    set_compatibility = request_method(requests.set_compatibility)
    fetch_dlq = request_method(requests.fetch_dlq)
    fetch_dlq_page = request_method(requests.fetch_dlq_page)
    replay_dlq = request_method(requests.replay_dlq)
    purge_dlq = request_method(requests.purge_dlq)
    begin = request_method(requests.begin)
    produce_in_transaction = request_method(requests.produce_in_transaction)
    commit_transaction = request_method(requests.commit_transaction)
    rollback_transaction = request_method(requests.rollback_transaction)
    join_cluster = request_method(requests.join_cluster)
    leave_cluster = request_method(requests.leave_cluster)
    cluster_status = request_method(requests.cluster_status)
    cluster_metadata = request_method(requests.cluster_metadata)
    who_am_i = request_method(requests.who_am_i)
    create_user = request_method(requests.create_user)
    update_user = request_method(requests.update_user)
    change_password = request_method(requests.change_password)
    delete_user = request_method(requests.delete_user)
    list_users = request_method(requests.list_users)
    get_user = request_method(requests.get_user)
    set_acl = request_method(requests.set_acl)
    get_acl = request_method(requests.get_acl)
    delete_acl = request_method(requests.delete_acl)
    list_acls = request_method(requests.list_acls)
    list_roles = request_method(requests.list_roles)
    set_role = request_method(requests.set_role)
    delete_role = request_method(requests.delete_role)
    query_audit = request_method(requests.query_audit)
    export_audit = request_method(requests.export_audit)


class Client(FlyMqMethods[Callable[[float], None]], BlockingClient):
    """A FlyMQ client for one thread at a time.

    It connects with its first request, and reconnects when the connection is lost; it then logs in with the credentials
    of the last accepted login. `tls` is a context or the path of a file with trusted certificates. `timeout` is the
    longest silence in seconds while connecting, or while a reply is due. `sleep` is for tests.

    A request whose connection broke is retried, up to `retry.attempts` times, if it is idempotent: all requests that
    only read, offsets of groups, and settings. Others raise `OutcomeUnknown`. Records may be produced with
    `retry=True`: they are then stored at least once, perhaps twice. A missing reply ends the connection, because
    replies are matched by their order alone.
    """

    def _start(self, sleep: Callable[[float], None] | None) -> None:
        BlockingClient.__init__(self, BlockingDriver(self._binding, self._connect_options, sleep or time.sleep))

    def another(self) -> Client:
        """A client with the same options and its own connection."""
        options = self._connect_options
        (address,) = options.addresses.ordered()
        username, password = self._binding.credentials or (None, None)
        return Client(
            *address,
            username=username,
            password=password,
            tls=options.tls,
            timeout=options.timeout,
            retry=options.retry,
            sleep=self._driver.sleep,
            scope=self._binding.scope,
        )

    def transaction(self) -> Transaction:
        """A block whose records are stored together at its end, or not at all if it ends with an exception."""
        return Transaction(self)


class AsyncClient(FlyMqMethods[Callable[[float], Awaitable[None]]], AsyncClientCore):
    """A FlyMQ client for the tasks of one event loop, with the options and guarantees of `Client`. Requests of all
    tasks share one connection, and are sent in the order of the calls without waiting for replies."""

    def _start(self, sleep: Callable[[float], Awaitable[None]] | None) -> None:
        AsyncClientCore.__init__(self, AsyncDriver(self._binding, self._connect_options, sleep or asyncio.sleep))

    def transaction(self) -> AsyncTransaction:
        """A block whose records are stored together at its end, or not at all if it ends with an exception."""
        return AsyncTransaction(self)
