"""What the Flight process asks the broker about staging and publishing, on the broker's side."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.broker.broker import Broker
from penstock.broker.names import check_scope
from penstock.broker.publications.staging import CHUNK_BYTES
from penstock.log.engine import Durability
from penstock.workers.flight.publish_rpc_messages import (
    PublicationRequest,
    PublishedRows,
    StagingPermit,
    StagingRequest,
    StagingTarget,
)
from penstock.workers.rpc import Handler, committed, typed
from penstock.workers.supervisor import Empty


class PublishHandlers:
    def __init__(self, broker: Broker, durability: Durability) -> None:
        self._broker = broker
        self._sync = durability is Durability.SYNCED

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "publish.prepare": typed(StagingRequest, self.places),
            "publish.publish": typed(PublicationRequest, self.publish),
            "publish.discard": typed(PublicationRequest, self.discard),
        }

    async def places(self, request: StagingRequest) -> StagingPermit:
        check_scope(request.scope)
        broker, limits = self._broker, self._broker.limits
        permit, group = broker.publications.prepare(
            request.identity, request.scope, request.app, request.batch, request.names
        )
        found = [
            StagingTarget(topic.id, topic.name, topic.partitions, topic.settings.schema is not None)
            for topic in permit.topics
        ]
        await committed(group)
        return StagingPermit(
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

    async def publish(self, request: PublicationRequest) -> PublishedRows:
        check_scope(request.scope)
        publishing = self._broker.publications.publish(
            request.identity, request.scope, request.app, request.batch, request.refs
        )
        await committed(publishing.outcome)
        return PublishedRows(publishing.rows, publishing.repeated)

    async def discard(self, request: PublicationRequest) -> Empty:
        check_scope(request.scope)
        self._broker.publications.discard(request.identity, request.scope, request.app, request.batch, request.refs)
        return Empty()
