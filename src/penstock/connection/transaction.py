"""Transactions: records in any number of topics that become visible together, or not at all. They use FlyMQ's door."""

from __future__ import annotations

from penstock.clients import flymq
from penstock.connection.producing import chosen
from penstock.connection.records import Headers, Text, header_pairs, optional_bytes, to_bytes


class Transaction(flymq.Transaction):
    """`with connection.transaction() as transaction: transaction.produce(…)`: all of the records, or none.

    They are stored when the block ends, unless it ends with an exception. If the connection is lost before that, the
    end of the block raises `TransactionOver`, nothing is stored, and the block can be run again. A commit whose reply
    is lost is retried and takes effect once."""

    def produce(  # type: ignore[override]
        self,
        topic: str,
        value: Text,
        key: Text | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Add a record to the transaction. It has no offset until the block ends."""
        super().produce(topic, to_bytes(value), optional_bytes(key), chosen(partition), header_pairs(headers))


class AsyncTransaction(flymq.AsyncTransaction):
    """`Transaction` for `async with`. Other tasks may use the connection meanwhile."""

    async def produce(  # type: ignore[override]
        self,
        topic: str,
        value: Text,
        key: Text | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Add a record to the transaction. It has no offset until the block ends."""
        await super().produce(topic, to_bytes(value), optional_bytes(key), chosen(partition), header_pairs(headers))
