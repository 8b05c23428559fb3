"""Tables of topics: what there is to do for them, as values, and the rules of what comes next. Pure.

The work itself is done in a process of its own, by `penstock.log.tables`; a job tells it all that it has to know.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from penstock.broker.schemas.schema import Schema
from penstock.broker.state.state import Topic
from penstock.log.engine import ClosedFile, ClosedSpan, number_of, topic_of
from penstock.log.tables.damage import Damage
from penstock.log.tables.location import TableRef

TOPICS_AT_ONCE: Final = 256  # of one job: what it has done is known only at its end
SPAN_OF_RETENTION: Final = 10  # a file of a table has at most this part of what retention keeps
FIRST_PAUSE: Final = 1_000_000  # µs after a failure; doubled with each one that follows
LONGEST_PAUSE: Final = 300_000_000
LOOKS_AT_ONCE: Final = 64  # topics that one search for a table to look after goes through
TYPED_VERSIONS: Final = 20  # of a schema, by which values are read
TYPED_BYTES: Final = 4 << 20  # of the definitions in one job
TROUBLE: Final = 3  # failures in a row that an operator should know of


@dataclass(frozen=True, slots=True)
class TablePolicy:
    """The default of topics, and the location of tables."""

    enabled: bool = False
    root: str = ""  # a folder, or any URL that `deltalake` takes
    options: Mapping[str, str] = field(default_factory=dict)  # for the object store
    file_bytes: int = 256 << 20  # what small files are merged to
    keep_us: int = 3_600_000_000  # how long files that were replaced stay, for those who still read them
    maintenance_us: int = 60_000_000  # between two looks at a table
    typed: bool = True  # topics with a schema have a typed table, too


# -- jobs


class TableSpan(NamedTuple):
    """Offsets of a partition to take over, and where its log starts."""

    first: int
    end: int
    start: int


class TypedRows(msgspec.Struct):
    """The schemas and bounds by which the typed table of a topic is made."""

    schemas: list[Schema]  # the newest versions, the oldest of them first
    hidden: dict[int, list[int]]  # by partition: the offset below which all records are gone, and single ones


class TableShare(msgspec.Struct):
    """The share of a segment that belongs to one table."""

    ref: TableRef
    spans: dict[int, TableSpan]  # by the partition's number
    typed: TypedRows | None = None


class BuildJob(msgspec.Struct, tag="build"):
    """Take over what a closed segment has."""

    id: int
    sequence: int  # of the file
    shares: list[TableShare]


class CareJob(msgspec.Struct, tag="care"):
    """Look after a table: drop what lies below the log starts, merge small files, remove what nobody reads any more,
    and say what retention wants to go."""

    id: int
    ref: TableRef
    now: int  # for retention, µs
    starts: dict[int, int]  # log starts that no crash takes back
    limits: dict[int, tuple[float | None, int | None]]  # seconds and bytes to keep
    journal_bytes: dict[int, int]  # of each partition, in segments alone
    file_bytes: int
    file_seconds: float | None  # from the oldest to the newest record of a merged file
    keep_seconds: float
    typed: TypedRows | None = None


class RemoveJob(msgspec.Struct, tag="remove"):
    """The topic is gone: remove its table."""

    id: int
    ref: TableRef


class RepairJob(msgspec.Struct, tag="repair"):
    """Build again what is damaged in a table, as far as the journal has it."""

    id: int
    ref: TableRef
    starts: dict[int, int]  # log starts of all partitions
    ends: dict[int, int]  # up to where the journal believes that the table has each
    checksums: bool  # also write files again that have none
    verify: bool = False  # only look


Job = BuildJob | CareJob | RemoveJob | RepairJob


class RepairReport(msgspec.Struct):
    """The outcome of a repair, and the table as it is now."""

    sound: bool
    version: int | None
    records: int  # that can be read
    compared: int  # those of them that the journal has too
    log_rebuilt: bool = False
    rebuilt: list[Damage] = []
    lost: list[Damage] = []  # what neither the journal nor any file has: errors for whoever reads it
    removed: list[str] = []  # damaged files that no version needed
    rewritten: int = 0  # sound files that had no checksums
    copies: str = ""  # where to find what was replaced
    left: list[Damage] = []  # all that is damaged now
    problems: list[str] = []  # what else is not as it should be now


class TableOutcome(msgspec.Struct):
    """The outcome of a job, for one table: an error, or the offsets that were asked for."""

    topic: int
    error: str = ""
    offsets: dict[int, int] = {}  # of a build: up to where the table has each partition; of care: new log starts
    bytes: int | None = None  # of care: what the table's files take, if that could be found out
    report: RepairReport | None = None  # of a repair
    typed_error: str = ""  # of the typed table, which holds up nothing else


class JobDone(msgspec.Struct):
    id: int
    outcomes: list[TableOutcome]


# -- rules


def next_build(
    closed: Sequence[ClosedFile], wanted: Callable[[int], bool], backing_off: Container[int]
) -> tuple[int, dict[int, dict[int, ClosedSpan]]] | None:
    """The oldest file that has something for a table: its number, and spans by topic and partition. Topics that are
    `backing_off` wait, and then also with what later files have: a table takes its records in order."""
    for file in closed:
        found: dict[int, dict[int, ClosedSpan]] = {}
        for partition, span in file.spans.items():
            topic = topic_of(partition)
            if topic in backing_off or not wanted(topic):
                continue
            if topic in found or len(found) < TOPICS_AT_ONCE:
                found.setdefault(topic, {})[number_of(partition)] = span
        if found:
            return file.sequence, found
    return None


def merged_span(seconds: float | None) -> float | None:
    """The span of time that a merged file may have, so that retention by age takes it in time."""
    return None if seconds is None else max(seconds / SPAN_OF_RETENTION, 1.0)


def merged_bytes(target: int, limit: int | None) -> int:
    """As `merged_span`, for retention by bytes."""
    return target if limit is None else max(min(target, limit // SPAN_OF_RETENTION), 1)


@dataclass(slots=True)
class Failures:
    """Of one table, or of all of them together: how often in a row, and until when to leave it alone."""

    count: int = 0
    until: int = 0  # µs
    reason: str = ""

    def add(self, now: int, reason: str) -> None:
        self.count += 1
        self.reason = reason
        self.until = now + min(FIRST_PAUSE << min(self.count - 1, 20), LONGEST_PAUSE)

    def interrupted(self, reason: str) -> None:
        """Without a pause: whoever was interrupted makes one before it asks again."""
        self.count += 1
        self.reason = reason


def in_trouble(topics: Mapping[int, Topic], failures: Mapping[int, Failures]) -> list[str]:
    """The problems that an operator should know of."""
    return [
        f"the table of topic '{topics[topic].name}' cannot be built ({found.count} attempts): {found.reason}"
        for topic, found in failures.items()
        if found.count >= TROUBLE and topic in topics
    ]
