"""A topic's read view as a message from the broker to a worker that reads the records itself."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.broker.fetch.read_view import ReadView
from penstock.broker.names import Scope
from penstock.broker.security.access import Identity
from penstock.workers.flight.rpc_messages import ReadViewMessage, ReadViewPartition, TableLocation


def to_message(broker: Broker, identity: Identity, scope: Scope, view: ReadView) -> ReadViewMessage:
    return ReadViewMessage(
        view.topic.id,
        view.topic.name,
        view.now,
        view.horizon,
        [
            ReadViewPartition(number, bounds.start, bounds.high_watermark, deleted.below, sorted(deleted.single))
            for number, bounds, deleted in view.partitions
        ],
        _table(broker, identity, scope, view),
    )


def _table(broker: Broker, identity: Identity, scope: Scope, view: ReadView) -> TableLocation | None:
    """The table's location, even before it exists: records may move there while they are being read."""
    described = broker.tables.describe(identity, scope, view.topic.name)
    ref = broker.tables.catalog.find(view.topic.id)
    if ref is None:
        return None
    return TableLocation(ref.url, ref.options, {} if described is None else described.ends)
