"""What the Flight process asks the broker about staging and publishing, on the broker's side."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.broker.broker import Broker
from penstock.broker.names import check_scope
from penstock.broker.publications.staging import CHUNK_BYTES
from penstock.log.engine import Durability
from penstock.workers.flight.publish_rpc_messages import (
    AskedPlaces,
    AskedPublication,
    Places,
    PublishedRows,
    StagingTarget,
)
from penstock.workers.rpc import Handler, committed, typed
from penstock.workers.supervisor import Nothing


class PublishCalls:
    def __init__(self, broker: Broker, durability: Durability) -> None:
        self._broker = broker
        self._sync = durability is Durability.SYNCED

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "publish.places": typed(AskedPlaces, self.places),
            "publish.publish": typed(AskedPublication, self.publish),
            "publish.discard": typed(AskedPublication, self.discard),
        }

    async def places(self, asked: AskedPlaces) -> Places:
        check_scope(asked.scope)
        broker, limits = self._broker, self._broker.limits
        permit, group = broker.publications.prepare(asked.identity, asked.scope, asked.app, asked.batch, asked.names)
        found = [
            StagingTarget(topic.id, topic.name, topic.partitions, topic.settings.schema is not None)
            for topic in permit.topics
        ]
        await committed(group)
        return Places(
            permit.app,
            permit.key,
            found,
            self._sync,
            min(CHUNK_BYTES, broker.entry_bytes // 4),
            limits.record_bytes,
            limits.staged_topics,
            limits.staged_stream_bytes,
            limits.staged_bytes,
            limits.staged_files,
        )

    async def publish(self, asked: AskedPublication) -> PublishedRows:
        check_scope(asked.scope)
        publishing = self._broker.publications.publish(asked.identity, asked.scope, asked.app, asked.batch, asked.refs)
        await committed(publishing.outcome)
        return PublishedRows(publishing.rows, publishing.repeated)

    async def discard(self, asked: AskedPublication) -> Nothing:
        check_scope(asked.scope)
        self._broker.publications.discard(asked.identity, asked.scope, asked.app, asked.batch, asked.refs)
        return Nothing()
