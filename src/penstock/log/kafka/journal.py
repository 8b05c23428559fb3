"""A cell's journal, as seen by the rest of the package: records with a stamp, in one order, without gaps.

`client.py` implements it on Kafka; tests in memory, with a network that loses and repeats messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from penstock.log.errors import LogError
from penstock.log.group_format import HEADER_SIZE, encode_group_header
from penstock.log.kafka.fencing import Kind, Stamp, Term
from penstock.log.kafka.snapshot_topic import KeyedTopic
from penstock.log.open_group import PendingGroup

FORMAT: Final = b"1"
SALT: Final = int.from_bytes(b"PENSTOCK", "little")
"""The salt of groups in a journal on Kafka. It can be fixed: there are no remains of an earlier use of a disk."""


class JournalTrimmed(LogError):
    """The journal no longer has the requested records: tables and snapshots do."""


class JournalRecord(NamedTuple):
    """A record of the journal. A foreign one has no stamp."""

    offset: int
    stamp: Stamp | None
    value: bytes


OnStored = Callable[[int, str], None]
"""Called with the offset at which a record was stored; or with -1 and the reason why that is unknown."""


class JournalProducer(Protocol):
    """Sends records in order. After a failure it is closed and replaced."""

    def send(self, stamp: Stamp, value: bytes, on_stored: OnStored) -> None:
        """Does not block; `poll` calls back. Raises LogUnavailable if its queue is full."""

    def poll(self, seconds: float) -> None:
        """Wait for delivery reports, and call back for them."""

    def close(self) -> None:
        """Drop unacknowledged records, which may be stored all the same."""


class JournalReader(Protocol):
    def read(self, seconds: float) -> list[JournalRecord]:
        """The next records; empty if none arrive within that time. Raises LogUnavailable or JournalTrimmed."""

    def close(self) -> None: ...


class Journal(Protocol):
    """All methods block, may be called on any thread, and raise LogUnavailable."""

    def bounds(self) -> tuple[int, int]:
        """The first offset, and the one after the last."""

    def reader(self, offset: int) -> JournalReader: ...

    def producer(self) -> JournalProducer: ...

    def trim(self, offset: int) -> None:
        """Remove all records below an offset, permanently."""

    def snapshots(self) -> KeyedTopic:
        """The compacted topic that belongs to the journal."""


def group_value(sealed: PendingGroup) -> bytes:
    """The group, encoded as in a segment."""
    entries = [*sealed.events, *[batch.data for batch in sealed.batches]]
    return encode_value(sealed.number, sealed.position, sealed.timestamp, sealed.advance, entries)


def encode_value(number: int, position: int, timestamp: int, advance: int, entries: Sequence[bytes]) -> bytes:
    length = HEADER_SIZE + sum(map(len, entries))
    head = encode_group_header(SALT, number, 0, position, timestamp, length, entries, advance)
    return b"".join((head, *entries))


def to_headers(stamp: Stamp) -> list[tuple[str, str | bytes | None]]:
    """The stamp as text headers, readable with other tools."""
    return [
        ("penstock", FORMAT),
        ("kind", stamp.kind.name.lower().encode()),
        ("term", b"%d" % stamp.term.number),
        ("owner", stamp.term.owner.encode()),
        ("group", b"%d" % stamp.group),
    ]


def from_headers(headers: list[tuple[str, bytes]] | None) -> Stamp | None:
    """The stamp; None for a foreign record, or one of an unknown format."""
    found = dict(headers or ())
    try:
        if found["penstock"] != FORMAT:
            return None
        term = Term(int(found["term"]), found["owner"].decode())
        return Stamp(Kind[found["kind"].decode().upper()], term, int(found["group"]))
    except (KeyError, ValueError, AttributeError):
        return None
