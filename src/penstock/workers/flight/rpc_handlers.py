"""The broker's handlers of the Flight process's requests: authentication, bounds, read views, publishing.

Each takes about as much time on the event loop as a metadata request at any other door. Records are never sent this
way: the Flight process reads them from the files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.names import check_scope
from penstock.broker.publications.staging import CHUNK_BYTES
from penstock.broker.runtime.executor import Deferred
from penstock.broker.security.access import ANONYMOUS, Identity
from penstock.log.engine import Durability
from penstock.typed_decoding import decode_msgpack
from penstock.workers import read_view_message
from penstock.workers.flight.rpc_messages import (
    Bounds,
    BoundsRequest,
    CommitRequest,
    LoggedIn,
    Login,
    PublicationRequest,
    PublishedRows,
    QueryRequest,
    QueryRows,
    ReadViewMessage,
    ReadViewRequest,
    Schema,
    SchemaRequest,
    ScopedRequest,
    StagingPermit,
    StagingRequest,
    StagingTarget,
    Topics,
    TypedView,
)
from penstock.workers.rpc import Handler, committed, finished, typed
from penstock.workers.supervisor import Empty

WRONG_KEY = "the key is wrong, or no longer counts"
LOCKED_OUT = "too many failed attempts; try again later"


class FlightHandlers:
    """Handlers for metadata and the visibility of records."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "flight.login": typed(Login, self.login),
            "flight.topics": typed(ScopedRequest, self.topics),
            "flight.bounds": typed(BoundsRequest, self.bounds),
            "flight.read_view": typed(ReadViewRequest, self.read_view),
            "flight.typed_view": typed(ReadViewRequest, self.typed_view),
            "flight.schema": typed(SchemaRequest, self.schema),
            "flight.commit": typed(CommitRequest, self.commit),
            "flight.query": self.query,
        }

    async def login(self, login: Login) -> LoggedIn:
        """Verify credentials. With security off everyone is anonymous, whatever they send."""
        broker = self._broker
        if not broker.access.enforced:
            return LoggedIn(ANONYMOUS._replace(peer=login.peer))
        if login.user is not None:
            verdict = await finished(
                broker.users.login(login.tenant, login.user, login.secret, login.peer), broker.executor
            )
            return LoggedIn(verdict) if isinstance(verdict, Identity) else LoggedIn(None, str(verdict))
        known = broker.keys.authenticate(login.secret, login.peer)
        if isinstance(known, Identity):
            return LoggedIn(known)
        return LoggedIn(None, WRONG_KEY if known is None else LOCKED_OUT)

    async def topics(self, request: ScopedRequest) -> Topics:
        check_scope(request.scope)
        found = self._broker.topics.list(request.identity, request.scope)
        typed_names = self._broker.tables.typed_names(request.identity, request.scope)
        await self._committed()
        return Topics({topic.name: topic.partitions for topic in found}, typed_names)

    async def bounds(self, request: BoundsRequest) -> Bounds:
        check_scope(request.scope)
        found = self._broker.topics.bounds(request.identity, request.scope, request.names)
        await self._committed()
        return Bounds({name: [(start, end) for start, end in bounds] for name, bounds in found.items()})

    async def read_view(self, request: ReadViewRequest) -> ReadViewMessage:
        check_scope(request.scope)
        identity, scope = request.identity, request.scope
        found = self._broker.fetch.read_view(identity, scope, request.topic, request.partition)
        message = read_view_message.to_message(self._broker, identity, scope, found)
        await self._committed()
        return message

    async def typed_view(self, request: ReadViewRequest) -> TypedView:
        """The read view of the topic whose typed table has the name in the request."""
        check_scope(request.scope)
        topic = self._broker.tables.typed_topic(request.identity, request.scope, request.topic)
        if topic is None:
            await self._committed()
            return TypedView(None)
        named = ReadViewRequest(request.identity, request.scope, topic.name, request.partition)
        return TypedView(await self.read_view(named))

    async def schema(self, request: SchemaRequest) -> Schema:
        check_scope(request.scope)
        found = self._broker.schemas.get(request.identity, request.scope, request.subject, request.version)
        await self._committed()
        return Schema(str(found.kind), found.definition.decode(), found.version, found.id)

    async def query(self, body: bytes) -> bytes:
        """Run a query in SQL. The rows are encoded off the loop: there may be many."""
        request = decode_msgpack(body, QueryRequest)
        check_scope(request.scope)
        run = self._broker.queries.run(
            request.identity, request.scope, request.sql, request.params, request.position, read_only=True
        )
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        run.start(lambda: None if done.done() else done.set_result(None))
        try:
            await done
        except asyncio.CancelledError:  # the Flight process has ended
            run.cancel()
            raise
        columns, rows = run.finish()
        seen = self._broker.state_log.engine.position if run.head is None else run.head
        reply = QueryRows(columns, rows, seen if request.position is None else request.position)
        return await finished(Deferred(partial(msgspec.msgpack.encode, reply), bytes), self._broker.executor)

    async def commit(self, request: CommitRequest) -> Empty:
        check_scope(request.scope)
        group = None
        for topic, partition, offset in request.offsets:
            group = self._broker.groups.commit(request.identity, request.scope, request.group, topic, partition, offset)
        await committed(group)
        return Empty()

    async def _committed(self) -> None:
        """Wait for pending commits: clients must not see what a crash could undo."""
        await committed(self._broker.pending_commit)


class PublishHandlers:
    """Handlers for staging and publishing."""

    def __init__(self, broker: Broker, durability: Durability) -> None:
        self._broker = broker
        self._sync = durability is Durability.SYNCED

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "publish.prepare": typed(StagingRequest, self.prepare),
            "publish.publish": typed(PublicationRequest, self.publish),
            "publish.discard": typed(PublicationRequest, self.discard),
        }

    async def prepare(self, request: StagingRequest) -> StagingPermit:
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
            limits.tenant_share,
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
