"""A broker with security on and something of everything in it, for tests of who may do what."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from tests.broker.broker_fixture import CHEAP, START, BrokerFixture
from tests.doors.flymq.peer import Peer

from penstock.broker.names import DEFAULT_SCOPE, INTERNAL
from penstock.broker.produce.delay import WAITING, Delayed
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, ANONYMOUS, AccessPolicy, Identity
from penstock.broker.security.audit_event import AuditPolicy
from penstock.broker.security.passwords import PasswordHashing
from penstock.broker.security.user import Acl
from penstock.broker.state.events import RoleSet, UserSet
from penstock.broker.state.state import encode_snapshot
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import partition_id
from penstock.wire.flymq import messages as m

WORD = "correct horse"
SCHEMA = b'{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
FITS, UNFIT = b'{"a": 1}', b"{}"

ROLES = {
    "admin": ["admin"],
    "second": ["admin"],
    "producer": ["producer"],
    "consumer": ["consumer"],
    "clerk": ["clerk"],  # reads and writes
    "guest": ["guest"],
    "owner": ["guest"],  # whom the list of `secret` names
}
"""Users and their roles."""

NOBODY = "anonymous"


@cache
def _hash() -> str:
    return PasswordHashing(CHEAP).hashed(WORD)


class Numbers(NamedTuple):
    """Names that the broker chose."""

    delayed: dict[str, int]  # by topic
    letters: dict[str, str]
    transaction: str  # of the owner, open, with a record for `secret`


class SeededBroker:
    """Topics `mine`, for everyone whose role allows it, and `secret`, for its owner; nobody has made `ghost`, and yet
    it has the same list. Each has a schema of its name, a group, a dead letter and a delayed record."""

    def __init__(self, **options: Any) -> None:
        self.fixture = fixture = BrokerFixture(
            access=AccessPolicy(True, [ADMINISTRATION]), audit=AuditPolicy(enabled=True), **options
        )
        broker = fixture.broker
        people = [UserSet("default", name, _hash(), roles, True, START, START) for name, roles in ROLES.items()]
        broker.state_log.commit((RoleSet("default", "clerk", ["read", "write"], ""), *people))
        for topic in ("secret", "ghost"):
            broker.users.set_acl(ADMINISTRATOR, DEFAULT_SCOPE, Acl(topic, False, ("owner",), (), restrict=True))
        delayed: dict[str, int] = {}
        letters: dict[str, str] = {}
        for topic in ("mine", "secret"):
            delayed[topic], letters[topic] = self._furnish(topic)
        self.owner = self.peer("owner")
        self.owner.ask(m.Subscribe("secret", "members", 0, "earliest"))
        begun = self.owner.ask(m.BeginTransaction())
        assert isinstance(begun, m.TransactionState)
        self.owner.ask(m.ProduceInTransaction(begun.transaction_id, "secret", b"later"))
        self.numbers = Numbers(delayed, letters, begun.transaction_id)
        Peer(fixture).refused(m.ListTopics())  # so that there is an audit log already
        fixture.commit()

    def _furnish(self, topic: str) -> tuple[int, str]:
        """The number of a delayed record, and the id of a dead letter."""
        fixture, broker, place = self.fixture, self.fixture.broker, (ADMINISTRATOR, DEFAULT_SCOPE)
        work = broker.schemas.register(*place, topic, SchemaKind.JSON, SCHEMA)
        work.run()
        work.finish()
        broker.topics.create(*place, topic, 2, TopicSettings(schema=topic, rejected="dead-letter"))
        broker.produce.append(*place, topic, 0, [FITS, UNFIT])
        broker.topics.change(*place, topic, TopicSettings())
        broker.groups.commit(*place, "g", topic, 0, 1)
        delayed, _ = broker.delays.schedule(*place, topic, FITS, None, -1, 60_000_000)
        assert isinstance(delayed, Delayed)
        fixture.commit()
        read = broker.dead_letters.fetch(*place, topic, 10)
        read.run()
        (letter,) = read.finish().letters
        return delayed.id, letter.id

    def identity(self, name: str) -> Identity:
        """As a login gives it. `tests` of logins show that."""
        return ANONYMOUS if name == NOBODY else Identity("user:" + name, "default", "127.0.0.1:50000", START)

    def peer(self, name: str) -> Peer:
        return Peer(self.fixture, self.identity(name))

    def all(self) -> object:
        """Everything that a request could have changed. The audit log is not in it: what is refused is noted there."""
        broker = self.fixture.broker
        state = broker.state_log.state
        places = [
            partition_id(topic.id, number)
            for topic in state.topics_by_id.values()
            for number in range(topic.partitions)
            if not topic.name.startswith(INTERNAL)
        ]
        ends = {place: self.fixture.engine.next_offset(place) for place in (WAITING, *places)}
        starts = {place: self.fixture.engine.bounds(place).start for place in (WAITING, *places)}
        open_ = {one.id: one.records for one in broker.transactions._open.values()}
        members = {place: broker.group_membership.of(DEFAULT_SCOPE, place[1], place[0]) for place in self._places()}
        return encode_snapshot(replace(state, chains={})), ends, starts, open_, members

    def _places(self) -> list[tuple[str, str]]:
        return list(self.fixture.broker.group_membership.places(DEFAULT_SCOPE))
