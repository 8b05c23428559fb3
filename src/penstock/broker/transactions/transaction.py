"""An open transaction: records of any topics, in memory, that are appended together or not at all.

Nothing of it is stored before it is committed, so nobody can see it before, and a crash leaves nothing behind. What is
stored with its records is its id, so that a commit that is asked for again is known to have happened.
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
RECORD_BYTES: Final = 128  # about what a record takes in memory besides its key and value
TOPIC_BYTES: Final = 2048  # about what the first record of a topic adds
LETTER_BYTES: Final = 2048  # about what is told about a dead letter

ACTIVE: Final = "active"
COMMITTING: Final = "committing"
COMMITTED: Final = "committed"
ROLLED_BACK: Final = "rolled back"
TIMED_OUT: Final = "timed out"


def new_id(identity: Identity, token: bytes) -> str:
    """An id that tells, of one who presents it, whether it is theirs: also when the transaction itself is forgotten."""
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
class Lot:
    """The records for one topic, by column, in the order in which they came."""

    values: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)  # as they were asked for
    expires: list[int] = field(default_factory=list)  # µs since 1970; 0 = never
    headers: list[Headers] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Transaction:
    id: str
    owner: Hashable  # with whom it ends
    scope: Scope  # where it was begun
    began: int  # µs since 1970
    lots: dict[tuple[Scope, str], Lot] = field(default_factory=dict)  # by topic
    records: int = 0
    size: int = 0  # about what it takes in memory and in the log
    outcome: CommitGroup | None = None  # of its last commit
    orphaned: bool = False  # the owner went away during the commit

    @property
    def state(self) -> str:
        if self.outcome is None or self.outcome.state is GroupState.FAILED:
            return ACTIVE
        return COMMITTING if self.outcome.state is GroupState.OPEN else COMMITTED

    def size_of(
        self, scope: Scope, topic: str, value: bytes, key: bytes | None, headers: Headers, *, letter: bool
    ) -> int:
        """The size that one more record would add, to a topic or, as it seems, to its dead letters."""
        first = (scope, topic) not in self.lots
        own = len(value) + len(key or b"") + headers_size(headers)
        return RECORD_BYTES + own + first * TOPIC_BYTES + letter * LETTER_BYTES

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
        lot = self.lots.setdefault((scope, topic), Lot())
        lot.values.append(value)
        lot.keys.append(key)
        lot.partitions.append(partition)
        lot.expires.append(expires)
        lot.headers.append(headers)
