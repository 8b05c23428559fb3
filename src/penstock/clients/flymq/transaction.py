"""Transactions as blocks: committed at the end, rolled back on an exception.

A transaction belongs to its connection. If that breaks, the server rolls it back and refuses all later operations in it
with TransactionOver. A commit whose reply is lost is retried, and takes effect once: a block that ends without an
exception has stored all its records, one that ends with TransactionOver none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar

from penstock.clients._core.aio import AsyncClientCore
from penstock.clients._core.blocking import BlockingClient
from penstock.clients._core.methods import procedure_method
from penstock.clients._core.procedure import Procedure
from penstock.clients._core.requests import results_of
from penstock.clients.flymq import requests
from penstock.clients.flymq.errors import FlyMqError
from penstock.wire.flymq import messages as m

C = TypeVar("C", BlockingClient, AsyncClientCore)
T = TypeVar("T")


class _TransactionProcedures(Generic[C]):
    """The procedures of both kinds of transaction."""

    def __init__(self, client: C) -> None:
        self._client: C = client
        self._id = ""

    @property
    def id(self) -> str:
        return self._id

    @procedure_method
    def produce(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        partition: int = requests.ANY,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> Procedure[m.RecordMetadata]:
        """Add a record to the transaction. It has no offset until the block ends."""
        spec = requests.produce_in_transaction(self._id, topic, value, key, partition, headers)
        (stored,) = results_of((yield [spec]))
        return stored  # type: ignore[no-any-return]

    def _begin(self) -> Procedure[Self]:
        (self._id,) = results_of((yield [requests.begin()]))
        return self

    def _end(self, error: BaseException | None) -> Procedure[None]:
        if error is None:
            results_of((yield [requests.commit_transaction(self._id)]))
            return
        with contextlib.suppress(FlyMqError):  # it is rolled back in any case; report the block's own exception
            yield [requests.rollback_transaction(self._id)]


class Transaction(_TransactionProcedures[BlockingClient]):
    """`with client.transaction() as transaction: transaction.produce(…)`: all of the records, or none."""

    def __enter__(self) -> Self:
        return self.run(self._begin())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._end(error))

    def run(self, procedure: Procedure[T]) -> T:
        return self._client.run(procedure)


class AsyncTransaction(_TransactionProcedures[AsyncClientCore]):
    """`Transaction` for `async with`. Other tasks may use the client meanwhile."""

    async def __aenter__(self) -> Self:
        return await self.run(self._begin())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.run(self._end(error))

    async def run(self, procedure: Procedure[T]) -> T:
        return await self._client.run(procedure)
