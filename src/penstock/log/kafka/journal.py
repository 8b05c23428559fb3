"""A cell's journal, as the rest of the package sees it: records with a stamp, in one order, without gaps.

`client.py` has it on Kafka; tests have it in memory, with a network that loses and repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from penstock.log.errors import LogError
from penstock.log.group_format import HEADER_SIZE, encode_group
from penstock.log.kafka.fencing import Kind, Stamp, Term
from penstock.log.kafka.snapshot_topic import KeyedTopic
from penstock.log.open_group import PendingGroup

FORMAT: Final = b"1"
SALT: Final = int.from_bytes(b"PENSTOCK", "little")
"""The salt of groups in a journal on Kafka: there is no earlier use of a disk whose remains could pass for one."""


class JournalTrimmed(LogError):
    """The journal does not hold that any more: tables and snapshots have it."""


class JournalRecord(NamedTuple):
    """A record of the journal. One that is not of this program has no stamp."""

    offset: int
    stamp: Stamp | None
    value: bytes


OnStored = Callable[[int, str], None]
"""Called with the offset at which a record was stored; or with -1 and the reason why that is not known."""


class JournalProducer(Protocol):
    """Sends records in order. After one has failed it is closed, and another is taken."""

    def send(self, stamp: Stamp, value: bytes, on_stored: OnStored) -> None:
        """Does not block; `poll` calls back. Raises LogUnavailable if it takes no more."""

    def poll(self, seconds: float) -> None:
        """Call back for what was answered, after waiting for it."""

    def close(self) -> None:
        """Forget what was not answered, which may be stored all the same."""


class JournalReader(Protocol):
    def read(self, seconds: float) -> list[JournalRecord]:
        """The next records; none if there are none within that time. Raises LogUnavailable or JournalTrimmed."""

    def close(self) -> None: ...


class Journal(Protocol):
    """All methods block, may be called on any thread, and raise LogUnavailable."""

    def bounds(self) -> tuple[int, int]:
        """The first offset that is there, and the one behind the last."""

    def reader(self, offset: int) -> JournalReader: ...

    def producer(self) -> JournalProducer: ...

    def trim(self, offset: int) -> None:
        """Remove what is below an offset, for good."""

    def snapshots(self) -> KeyedTopic:
        """The compacted topic beside the journal."""


def group_value(sealed: PendingGroup) -> bytes:
    """The group as the file journal writes it."""
    entries = [*sealed.events, *[batch.data for batch in sealed.batches]]
    return encode_value(sealed.number, sealed.position, sealed.timestamp, sealed.advance, entries)


def encode_value(number: int, position: int, timestamp: int, advance: int, entries: Sequence[bytes]) -> bytes:
    length = HEADER_SIZE + sum(map(len, entries))
    return encode_group(SALT, number, 0, position, timestamp, length, entries, advance)


def to_headers(stamp: Stamp) -> list[tuple[str, str | bytes | None]]:
    """In text, for those who look at the topic with other tools."""
    return [
        ("penstock", FORMAT),
        ("kind", stamp.kind.name.lower().encode()),
        ("term", b"%d" % stamp.term.number),
        ("owner", stamp.term.owner.encode()),
        ("group", b"%d" % stamp.group),
    ]


def from_headers(headers: list[tuple[str, bytes]] | None) -> Stamp | None:
    """None for a record that is not of this program, or of a format that it does not know."""
    found = dict(headers or ())
    try:
        if found["penstock"] != FORMAT:
            return None
        term = Term(int(found["term"]), found["owner"].decode())
        return Stamp(Kind[found["kind"].decode().upper()], term, int(found["group"]))
    except (KeyError, ValueError, AttributeError):
        return None
