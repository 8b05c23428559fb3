"""An open transaction: records of any topics, held in memory, that are appended together or not at all.

Nothing is stored before the commit, so nobody can see the records before, and a crash leaves nothing behind. The id is
stored with the records, so that a repeated commit is recognized as done.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from penstock.broker.limits import headers_size
from penstock.broker.names import Scope
from penstock.broker.security.access import Identity
from penstock.log.batch import Headers
from penstock.log.engine import CommitGroup, GroupState

PREFIX: Final = "txn-"
TOKEN_BYTES: Final = 16
RECORD_BYTES: Final = 128  # estimated memory of a record, in addition to its key and value
TOPIC_BYTES: Final = 2048  # estimated overhead of the first record of a topic
LETTER_BYTES: Final = 2048  # estimated size of a dead letter's metadata

ACTIVE: Final = "active"
COMMITTING: Final = "committing"
COMMITTED: Final = "committed"
ROLLED_BACK: Final = "rolled back"
TIMED_OUT: Final = "timed out"


def new_id(identity: Identity, token: bytes) -> str:
    """An id that proves to which identity it belongs, even when the transaction itself is forgotten."""
    return PREFIX + token.hex() + _mark(identity, token)


def belongs(id: str, identity: Identity) -> bool:  # noqa: A002 - it is the transaction's id
    try:
        token = bytes.fromhex(id.removeprefix(PREFIX)[: 2 * TOKEN_BYTES])
    except ValueError:
        return False
    return id == new_id(identity, token)


def _mark(identity: Identity, token: bytes) -> str:
    tenant = "" if identity.tenant is None else "@" + identity.tenant
    return blake2b(f"{identity.name}\0{tenant}".encode(), key=token, digest_size=4).hexdigest()


@dataclass(slots=True)
class TopicRecords:
    """The records for one topic, by column, in the order in which they were added."""

    values: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)  # as requested, possibly ANY
    expires: list[int] = field(default_factory=list)  # µs since 1970; 0 = never
    headers: list[Headers] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Transaction:
    id: str
    owner: Hashable  # the transaction ends when its owner does
    scope: Scope  # in which it was begun
    began: int  # µs since 1970
    by_topic: dict[tuple[Scope, str], TopicRecords] = field(default_factory=dict)
    records: int = 0  # of all topics
    size: int = 0  # estimated bytes in memory and in the log
    outcome: CommitGroup | None = None  # of its last commit attempt
    orphaned: bool = False  # the owner disconnected during the commit

    @property
    def state(self) -> str:
        if self.outcome is None or self.outcome.state is GroupState.FAILED:
            return ACTIVE
        return COMMITTING if self.outcome.state is GroupState.OPEN else COMMITTED

    def size_of(
        self, scope: Scope, topic: str, value: bytes, key: bytes | None, headers: Headers, *, letter: bool
    ) -> int:
        """The bytes that one more record would add to the transaction; `letter` if it will be a dead letter."""
        first = (scope, topic) not in self.by_topic
        size = len(value) + len(key or b"") + headers_size(headers)
        return RECORD_BYTES + size + first * TOPIC_BYTES + letter * LETTER_BYTES

    def add(
        self,
        scope: Scope,
        topic: str,
        value: bytes,
        key: bytes | None,
        partition: int,
        expires: int,
        headers: Headers,
        size: int,
    ) -> None:
        self.size += size
        self.records += 1
        records = self.by_topic.setdefault((scope, topic), TopicRecords())
        records.values.append(value)
        records.keys.append(key)
        records.partitions.append(partition)
        records.expires.append(expires)
        records.headers.append(headers)
