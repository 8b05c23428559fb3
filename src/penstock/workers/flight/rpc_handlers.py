"""What the broker answers to its Flight process: who somebody is, where partitions begin and end, what of them is live.

Each of these costs the event loop about what a request for metadata does at any other door. Records are never sent
this way: the Flight process reads them from the files.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.broker.broker import Broker
from penstock.broker.names import check_scope
from penstock.broker.security.access import ANONYMOUS, Identity
from penstock.workers import read_view_message
from penstock.workers.flight.rpc_messages import (
    Asked,
    AskedCommit,
    AskedSchema,
    AskedTopic,
    AskedTopics,
    Bounds,
    LoggedIn,
    Login,
    ReadViewMessage,
    Schema,
    Topics,
)
from penstock.workers.rpc import Handler, committed, finished, typed
from penstock.workers.supervisor import Nothing

WRONG_KEY = "the key is wrong, or no longer counts"
LOCKED_OUT = "too many failed attempts; try again later"


class FlightCalls:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "flight.login": typed(Login, self.login),
            "flight.topics": typed(Asked, self.topics),
            "flight.bounds": typed(AskedTopics, self.bounds),
            "flight.survey": typed(AskedTopic, self.read_view),
            "flight.schema": typed(AskedSchema, self.schema),
            "flight.commit": typed(AskedCommit, self.commit),
        }

    async def login(self, login: Login) -> LoggedIn:
        """With security off everybody is anonymous, whatever they show."""
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

    async def topics(self, asked: Asked) -> Topics:
        check_scope(asked.scope)
        found = self._broker.topics.list(asked.identity, asked.scope)
        await self._settled()
        return Topics({topic.name: topic.partitions for topic in found})

    async def bounds(self, asked: AskedTopics) -> Bounds:
        check_scope(asked.scope)
        found = self._broker.topics.bounds(asked.identity, asked.scope, asked.names)
        await self._settled()
        return Bounds({name: [(start, end) for start, end in bounds] for name, bounds in found.items()})

    async def read_view(self, asked: AskedTopic) -> ReadViewMessage:
        check_scope(asked.scope)
        identity, scope = asked.identity, asked.scope
        found = self._broker.fetch.read_view(identity, scope, asked.topic, asked.partition)
        told = read_view_message.told(self._broker, identity, scope, found)
        await self._settled()
        return told

    async def schema(self, asked: AskedSchema) -> Schema:
        check_scope(asked.scope)
        found = self._broker.schemas.get(asked.identity, asked.scope, asked.subject, asked.version)
        await self._settled()
        return Schema(str(found.kind), found.definition.decode(), found.version)

    async def commit(self, asked: AskedCommit) -> Nothing:
        check_scope(asked.scope)
        group = None
        for topic, partition, offset in asked.offsets:
            group = self._broker.groups.commit(asked.identity, asked.scope, asked.group, topic, partition, offset)
        await committed(group)
        return Nothing()

    async def _settled(self) -> None:
        """Nobody is shown what a crash could take back."""
        await committed(self._broker.pending_commit)
