"""Transactions as blocks: committed at the end, rolled back on an exception.

A transaction belongs to its connection. If that breaks, the server rolls it back, and what is done in it afterwards is
refused with TransactionOver. A commit whose reply is lost is asked again, and counts once: a block that ends without an
exception has stored all of its records, and one that ends by TransactionOver none.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.clients.flymq import questions as q
from penstock.clients.flymq.outcome import FlyMqError
from penstock.wire.flymq import messages as m

if TYPE_CHECKING:  # they make transactions
    from penstock.clients.flymq.asynchronous import AsyncClient
    from penstock.clients.flymq.blocking import Client


class Transaction:
    """`with client.transaction() as transaction: transaction.produce(…)`: all of the records, or none."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._id = ""

    @property
    def id(self) -> str:
        return self._id

    def __enter__(self) -> Self:
        self._id = self._client.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._client.commit_transaction(self._id)
            return
        with contextlib.suppress(FlyMqError):  # it is rolled back in any case; the block's own exception is the news
            self._client.rollback_transaction(self._id)

    def produce(self, topic: str, value: bytes, key: bytes | None = None, partition: int = q.ANY) -> m.RecordMetadata:
        """Store a record with the others. It has no offset until the end of the block."""
        return self._client.produce_in_transaction(self._id, topic, value, key, partition)


class AsyncTransaction:
    """The same as `Transaction`, for `async with`. Other tasks may use the client meanwhile."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._id = ""

    @property
    def id(self) -> str:
        return self._id

    async def __aenter__(self) -> Self:
        self._id = await self._client.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self._client.commit_transaction(self._id)
            return
        with contextlib.suppress(FlyMqError):
            await self._client.rollback_transaction(self._id)

    async def produce(
        self, topic: str, value: bytes, key: bytes | None = None, partition: int = q.ANY
    ) -> m.RecordMetadata:
        """Store a record with the others. It has no offset until the end of the block."""
        return await self._client.produce_in_transaction(self._id, topic, value, key, partition)
