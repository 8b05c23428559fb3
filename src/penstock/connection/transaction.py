"""Transactions: records of any number of topics that appear together, or not at all. FlyMQ's door carries them."""

from __future__ import annotations

from penstock.clients import flymq
from penstock.connection.producing import chosen
from penstock.connection.records import Headers, Text, header_pairs, optional_bytes, to_bytes


class Transaction(flymq.Transaction):
    """`with connection.transaction() as transaction: transaction.produce(…)`: all of the records, or none.

    They are stored when the block ends, and not if it ends by an exception, or if the connection is lost meanwhile:
    then the end of the block raises `TransactionOver`, nothing is stored, and the block may be run again. A commit
    whose reply is lost is sent again and counts once."""

    def produce(  # type: ignore[override]
        self,
        topic: str,
        value: Text,
        key: Text | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Store a record with the others. It has no offset until the end of the block."""
        super().produce(topic, to_bytes(value), optional_bytes(key), chosen(partition), header_pairs(headers))


class AsyncTransaction(flymq.AsyncTransaction):
    """The same as `Transaction`, for `async with`. Other tasks may use the connection meanwhile."""

    async def produce(  # type: ignore[override]
        self,
        topic: str,
        value: Text,
        key: Text | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Store a record with the others. It has no offset until the end of the block."""
        await super().produce(topic, to_bytes(value), optional_bytes(key), chosen(partition), header_pairs(headers))
