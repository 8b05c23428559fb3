"""Damage to tables that a worker finds while reading: reported to the broker, for its log, `/health` and `/metrics`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from penstock.log.errors import TableDamaged
from penstock.workers.rpc import Handler, RemoteError, RpcClient, typed
from penstock.workers.supervisor import Empty

if TYPE_CHECKING:  # slow to import, and not used by workers
    from penstock.broker.broker import Broker


class DamageMessage(msgspec.Struct, array_like=True):
    """A `TableDamaged` as a message."""

    file: str
    topic: str
    topic_id: int
    partition: int
    first: int
    end: int
    reason: str


def damage_handlers(broker: Broker) -> Mapping[str, Handler]:
    """The broker's side."""

    async def damaged(found: DamageMessage) -> Empty:
        damage_key = found.file, found.topic, found.partition, found.first, found.end
        broker.tables.damaged(TableDamaged(*damage_key, found.reason, topic_id=found.topic_id))
        return Empty()

    return {"tables.damaged": typed(DamageMessage, damaged)}


def damage_reporter(client: RpcClient) -> Callable[[TableDamaged], None]:
    """The worker's side."""

    def report(error: TableDamaged) -> None:
        message = DamageMessage(
            error.file, error.topic, error.topic_id, error.partition, error.first, error.end, error.reason
        )
        with contextlib.suppress(RemoteError):
            client.call("tables.damaged", message, Empty)

    return report
