"""A survey of a topic on its way from the broker to a process that reads the records itself."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.broker.fetch.read_view import ReadView
from penstock.broker.names import Scope
from penstock.broker.security.access import Identity
from penstock.workers.flight.rpc_messages import Partition, ReadViewMessage, TablePlace


def told(broker: Broker, identity: Identity, scope: Scope, found: ReadView) -> ReadViewMessage:
    return ReadViewMessage(
        found.topic.id,
        found.topic.name,
        found.now,
        found.horizon,
        [
            Partition(number, bounds.start, bounds.high_watermark, gone.below, sorted(gone.single))
            for number, bounds, gone in found.partitions
        ],
        _table(broker, identity, scope, found),
    )


def _table(broker: Broker, identity: Identity, scope: Scope, found: ReadView) -> TablePlace | None:
    """Also where there is no table yet: records may be moved there while they are being read."""
    described = broker.tables.describe(identity, scope, found.topic.name)
    place = broker.tables.find(found.topic.id)
    if place is None:
        return None
    return TablePlace(place.url, place.options, {} if described is None else described.ends)
