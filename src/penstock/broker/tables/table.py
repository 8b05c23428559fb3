"""Tables of topics: the jobs to do for them, as values, and the rules that choose the next one. Pure.

The work is done in a separate process, by `penstock.log.tables`; a job carries everything it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from penstock.broker.fetch.removal import RemovedRecords
from penstock.broker.names import Scope
from penstock.broker.schemas import schema as schema_rules
from penstock.broker.schemas.schema import Schema
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.state.state import State, Topic
from penstock.log.engine import (
    Bounds,
    ClosedFile,
    ClosedSpan,
    PartitionId,
    Retention,
    number_of,
    partition_id,
    topic_of,
)
from penstock.log.tables.damage import Damage
from penstock.log.tables.location import TYPED_SUFFIX, TableRef

TOPICS_AT_ONCE: Final = 256  # per job: its outcome is known only at its end
SPAN_OF_RETENTION: Final = 10  # a file of a table holds at most one tenth of what retention keeps
FIRST_PAUSE: Final = 1_000_000  # backoff after a failure, µs; doubled with each further one
LONGEST_PAUSE: Final = 300_000_000
IDLE_MAINTENANCE: Final = 3_600_000_000  # between two maintenance jobs of a table that does not change, µs
SHORT_KEEP: Final = 3600.0  # seconds that old versions are kept at least, if the policy says so: readers still use them
LOOKS_AT_ONCE: Final = 64  # topics examined by one search for a table to maintain
TYPED_VERSIONS: Final = 20  # of a schema, used to decode values
TYPED_BYTES: Final = 4 << 20  # of the definitions in one job
TROUBLE: Final = 3  # consecutive failures from which the operator is told


@dataclass(frozen=True, slots=True)
class TablePolicy:
    """The default for topics, and the location of tables."""

    enabled: bool = False
    root: str = ""  # a folder, or any URL that `deltalake` accepts
    options: Mapping[str, str] = field(default_factory=dict)  # for the object store
    file_bytes: int = 256 << 20  # target size when small files are merged
    keep_us: int = 7 * 24 * 3_600_000_000  # how long old versions, and the files that were replaced since, are kept
    maintenance_us: int = 60_000_000  # between two maintenance jobs of a table
    typed: bool = True  # topics with a schema also have a typed table


# -- jobs


class TableSpan(NamedTuple):
    """Offsets of a partition to add to its table, and the partition's log start."""

    first: int
    end: int
    start: int


class TypedRows(msgspec.Struct):
    """The schemas and bounds for the typed table of a topic."""

    schemas: list[Schema]  # the newest versions, in ascending order
    hidden: dict[int, list[int]]  # by partition: offset below which all records are gone, then single removed ones


class TableShare(msgspec.Struct):
    """The part of a segment that belongs to one table."""

    ref: TableRef
    spans: dict[int, TableSpan]  # by partition number
    typed: TypedRows | None = None


class BuildJob(msgspec.Struct, tag="build"):
    """Add the records of a closed segment to tables."""

    id: int
    sequence: int  # of the segment
    shares: list[TableShare]


class MaintenanceJob(msgspec.Struct, tag="care"):
    """Maintain a table: drop records below the log starts, merge small files, delete files that nobody reads any more,
    and report which records retention should remove.
    """

    id: int
    ref: TableRef
    now: int  # for retention, µs
    starts: dict[int, int]  # durable log starts
    limits: dict[int, tuple[float | None, int | None]]  # seconds and bytes to keep
    journal_bytes: dict[int, int]  # of each partition, in segments only
    file_bytes: int
    file_seconds: float | None  # the most between the oldest and the newest record of a merged file
    keep_seconds: float
    typed: TypedRows | None = None


class RemoveJob(msgspec.Struct, tag="remove"):
    """Remove the table of a deleted topic."""

    id: int
    ref: TableRef


class RepairJob(msgspec.Struct, tag="repair"):
    """Rebuild damaged parts of a table, as far as the journal still has the records."""

    id: int
    ref: TableRef
    starts: dict[int, int]  # log starts of all partitions
    ends: dict[int, int]  # by partition: the end of the table according to the journal
    checksums: bool  # also rewrite files that have no checksums
    verify: bool = False  # only check, change nothing
    typed: TypedRows | None = None  # to verify the typed table too


Job = BuildJob | MaintenanceJob | RemoveJob | RepairJob


class TypedReport(msgspec.Struct):
    """The outcome of the verification of a typed table."""

    name: str  # in SQL and Flight
    version: int | None
    records: int
    compared: int  # with the topic's table
    problems: list[str] = []

    @property
    def sound(self) -> bool:
        return not self.problems


class RepairReport(msgspec.Struct):
    """The outcome of a repair, and the condition of the table afterwards."""

    sound: bool
    version: int | None
    records: int  # readable ones
    compared: int  # readable ones that were compared with the journal
    log_rebuilt: bool = False
    rebuilt: list[Damage] = []
    lost: list[Damage] = []  # neither in the journal nor in any file: reading these fails
    removed: list[str] = []  # damaged files that no version needed
    rewritten: int = 0  # intact files that had no checksums
    copies: str = ""  # location of copies of the replaced files
    left: list[Damage] = []  # remaining damage
    problems: list[str] = []  # other remaining problems
    typed: TypedReport | None = None  # of a verification: the typed table, if the topic has one


class TableOutcome(msgspec.Struct):
    """The outcome of a job for one table: an error, or offsets."""

    topic: int
    error: str = ""
    offsets: dict[int, int] = {}  # of a build: the table's end in each partition; of maintenance: new log starts
    bytes: int | None = None  # of maintenance: size of the table's files, if it could be determined
    report: RepairReport | None = None  # of a repair
    typed_error: str = ""  # of the typed table, which does not block anything else


class JobDone(msgspec.Struct):
    id: int
    outcomes: list[TableOutcome]


# -- rules


def typed_rows(
    state: State, bounds: Callable[[PartitionId], Bounds], topic: Topic, room: int = TYPED_BYTES
) -> TypedRows | None:
    """The schemas and bounds of the topic's typed table; None if it has none or they exceed `room` bytes."""
    name = topic.settings.schema
    if name is None:
        return None
    found: list[Schema] = []
    for schema in reversed(schema_rules.in_scope(state.schemas, topic.scope, name)[-TYPED_VERSIONS:]):
        room -= schema_rules.size_of(schema)
        if room < 0:
            break
        found.insert(0, schema)
    hidden: dict[int, list[int]] = {}
    for number in range(topic.partitions):
        place = partition_id(topic.id, number)
        removed = state.removed.get(place, RemovedRecords())
        hidden[number] = [max(bounds(place).start, removed.below), *sorted(removed.single)]
    return TypedRows(found, hidden) if found else None


def typed_topic(topics: Mapping[str, Topic], name: str) -> Topic | None:
    """The topic whose typed table has this name in SQL and Flight, if it may have one. A topic of that name comes
    first."""
    topic = topics.get(name.removesuffix(TYPED_SUFFIX)) if name.endswith(TYPED_SUFFIX) and name not in topics else None
    return None if topic is None or topic.settings.schema is None else topic


def require_typed(access: Access, identity: Identity, scope: Scope, name: str, topic: str) -> None:
    """Check that the typed table `name` of `topic` may be read: by those who may read the topic. The refusal is the
    same whether or not it exists. Raises AccessDenied."""
    if not access.allows(identity, Permission.READ, scope, topic):
        access.require(identity, Permission.READ, scope, name)
    access.require(identity, Permission.READ, scope, topic)


def typed_name(topics: Mapping[str, Topic], topic: Topic) -> str | None:
    """The name of a topic's typed table, the opposite of `typed_topic`."""
    name = f"{topic.name}{TYPED_SUFFIX}"
    return None if topic.settings.schema is None or name in topics else name


def next_build(
    closed: Sequence[ClosedFile], wanted: Callable[[int], bool], backing_off: Container[int]
) -> tuple[int, dict[int, dict[int, ClosedSpan]]] | None:
    """The oldest file that has records for a table: its number, and spans by topic and partition. Topics that are
    `backing_off` are skipped in all files, because a table takes its records in order.
    """
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
    """The longest time span of a merged file, so that retention by age can remove it in time. In seconds."""
    return None if seconds is None else max(seconds / SPAN_OF_RETENTION, 1.0)


def merged_bytes(target: int, limit: int | None) -> int:
    """Like `merged_span`, for retention by bytes."""
    return target if limit is None else max(min(target, limit // SPAN_OF_RETENTION), 1)


def version_seconds(keep_us: int, retention: Retention) -> float:
    """The time that old versions of a table are kept. A topic with a limit is to stay small, and what retention removes
    from it stays on the disk as long as a version has it: so not longer than its records, or an hour if bytes are
    limited."""
    keep = keep_us / 1_000_000
    if retention.bytes is not None:
        return min(keep, SHORT_KEEP)
    return keep if retention.seconds is None else min(keep, max(retention.seconds, SHORT_KEEP))


@dataclass(slots=True)
class Failures:
    """Consecutive failures of a table, or of all tables together, and the end of the backoff."""

    count: int = 0
    until: int = 0  # µs
    reason: str = ""

    def add(self, now: int, reason: str) -> None:
        self.count += 1
        self.reason = reason
        self.until = now + min(FIRST_PAUSE << min(self.count - 1, 20), LONGEST_PAUSE)

    def interrupted(self, reason: str) -> None:
        """Count a failure without a backoff: the worker that was interrupted pauses before it asks for another job."""
        self.count += 1
        self.reason = reason


def in_trouble(topics: Mapping[int, Topic], failures: Mapping[int, Failures]) -> list[str]:
    """The problems that an operator should know about."""
    return [
        f"the table of topic '{topics[topic].name}' cannot be built ({found.count} attempts): {found.reason}"
        for topic, found in failures.items()
        if found.count >= TROUBLE and topic in topics
    ]
