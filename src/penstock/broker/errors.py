"""The errors of the broker. Each protocol maps these to its own codes, in one table of its own.

Errors of the log (`penstock.log.errors`) pass through unchanged and belong to the same table.
"""

from __future__ import annotations

from collections.abc import Sequence


class BrokerError(Exception):
    """Any refusal by the broker."""


class InvalidName(BrokerError):
    """A name that no topic, group, tenant or namespace may have."""


class InvalidArgument(BrokerError):
    """A value outside its range."""


class TopicNotFound(BrokerError):
    """There is no topic of this name."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic '{topic}' not found")
        self.topic = topic


class TopicExists(BrokerError):
    """A topic of this name is there already."""

    def __init__(self, topic: str, partitions: int) -> None:
        super().__init__(f"Topic '{topic}' already exists")
        self.topic = topic
        self.partitions = partitions


class PartitionNotFound(BrokerError):
    """The topic has fewer partitions."""

    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        super().__init__(f"Partition {partition} not found in topic '{topic}'")
        self.topic = topic
        self.partition = partition
        self.partitions = partitions


class QueueNotFound(BrokerError):
    """No such queue, or none that this identity may use."""


class KeyNotFound(BrokerError):
    """No API key has this number."""


class GroupNotFound(BrokerError):
    """The group has no offsets and no members in this topic."""

    def __init__(self, group: str, topic: str) -> None:
        super().__init__(f"Group '{group}' has nothing in topic '{topic}'")
        self.group = group
        self.topic = topic


class SchemaNotFound(BrokerError):
    """There is no schema of this name, or no such version."""

    def __init__(self, name: str, version: int | None = None) -> None:
        super().__init__(f"Schema '{name}'{'' if version is None else f' version {version}'} not found")
        self.name = name
        self.version = version


class SchemaInvalid(BrokerError):
    """A definition that is no schema of its kind."""


class SchemaIncompatible(BrokerError):
    """A version that does not fit those before it, in the way that the subject wants."""


class RecordRejected(BrokerError):
    """A record that does not fit its topic's schema. `reasons` are for the producer; `index` is its place if there were
    several."""

    def __init__(self, reasons: Sequence[str], index: int | None = None) -> None:
        which = "The record" if index is None else f"Record {index}"
        super().__init__(f"{which} does not fit its schema: " + "; ".join(reasons))
        self.reasons = list(reasons)
        self.index = index


class TransactionNotFound(BrokerError):
    """No transaction has this id, or it is another client's."""

    def __init__(self, id: str) -> None:  # noqa: A002 - it is the transaction's id
        super().__init__(f"transaction not found: {id[:100]}")
        self.id = id


class TransactionNotActive(BrokerError):
    """It is over, or it is being committed."""

    def __init__(self, state: str) -> None:
        super().__init__(f"transaction is not active: {state}")
        self.state = state


class TransactionTooLarge(BrokerError):
    """One more record would be more than a transaction may hold."""


class StagedNotFound(BrokerError):
    """A file of a publication that was not staged for it, or is deleted."""

    def __init__(self, ref: str, reason: str = "not found") -> None:
        super().__init__(f"What was staged as '{ref[:100]}' cannot be published ({reason}): stage and publish it again")
        self.ref = ref


class DelayTooLong(InvalidArgument):
    """A delay that is longer than `topics.max_delay_seconds`."""

    def __init__(self, delay: int, limit: int) -> None:
        super().__init__(f"delay {delay / 1e6:g}s exceeds maximum allowed delay {limit / 1e6:g}s")
        self.delay = delay
        self.limit = limit


class DelayedNotFound(BrokerError):
    """Nothing with this id is waiting: it appeared, was cancelled, or never was."""

    def __init__(self, id: int) -> None:  # noqa: A002 - it is the id of what was delayed
        super().__init__(f"message not found: {id}")
        self.id = id


class DeadLetterNotFound(BrokerError):
    """No such dead letter: it was replayed or removed, or never was."""

    def __init__(self, letter: int | str) -> None:
        super().__init__(f"message not found: {letter}")
        self.letter = letter


class UserNotFound(BrokerError):
    """The tenant has no user of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"User '{name}' not found")
        self.name = name


class UserExists(BrokerError):
    """A user of this name is there already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"User '{name}' already exists")
        self.name = name


class RoleNotFound(BrokerError):
    """There is no role of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Role '{name}' not found")
        self.name = name


class WrongPassword(BrokerError):
    """The password that should prove the change is not the user's."""


class RecordTooLarge(BrokerError):
    """A record that is larger than `limits.record_bytes`."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"Record of {size} bytes is larger than the limit of {limit} bytes")
        self.size = size
        self.limit = limit


class RecordUnsendable(BrokerError):
    """A stored record that no frame of the reader's protocol can carry."""

    def __init__(self, offset: int, size: int, limit: int) -> None:
        super().__init__(
            f"the record at offset {offset} has {size} bytes, and a frame carries {limit} at most;"
            f" the next one is at offset {offset + 1}"
        )
        self.offset = offset
        self.size = size


class AccessDenied(BrokerError):
    """The identity may not do this."""


class AuditOff(BrokerError):
    """There is no audit log to look into."""

    def __init__(self) -> None:
        super().__init__("The audit log is not kept: security.audit is off")


class ShuttingDown(BrokerError):
    """The broker takes no more requests."""


class InvalidPartitionCount(InvalidArgument):
    """A topic with no partitions, or with too many."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"Invalid partition count: {count}; 1 to {limit} are allowed")
        self.count = count
        self.limit = limit


class LimitReached(BrokerError):
    """One more would be over a limit of the broker."""


class StateUnreadable(BrokerError):
    """The log holds state that this version does not understand, most likely written by a newer one."""


class QueryError(BrokerError):
    """A statement that cannot be carried out: it fails while it runs, or it asks for what there is not."""


class QueryInvalid(QueryError):
    """A statement that is no SQL."""


class QueryTooLarge(QueryError):
    """A statement that takes more time, memory or room for its result than one may."""


class TableNotFound(QueryError):
    """The statement names a table that is not there."""

    def __init__(self, table: str) -> None:
        super().__init__(f"Table '{table}' not found")
        self.table = table


class TableExists(QueryError):
    """CREATE TABLE of a table that is there already."""

    def __init__(self, table: str) -> None:
        super().__init__(f"Table '{table}' already exists")
        self.table = table


class PositionAhead(QueryError):
    """The log has not come so far."""

    def __init__(self, position: int, head: int) -> None:
        super().__init__(f"Position {position} is ahead of the log, which is at {head}")
        self.position = position
        self.head = head


class PositionGone(QueryError):
    """Retention has removed part of what was there at this position."""


class DuplicateKey(QueryError):
    """A row with this primary key is there already."""


class QueriesOff(QueryError):
    """No statements are carried out here, or not at the moment."""


class TenantNotFound(BrokerError):
    """There is no such tenant."""

    def __init__(self, tenant: str) -> None:
        super().__init__(f"Tenant '{tenant}' not found")
        self.tenant = tenant


class TenantExists(BrokerError):
    """A tenant of this name is registered under another label."""

    def __init__(self, tenant: str) -> None:
        super().__init__(f"Tenant '{tenant}' already exists under another label")
        self.tenant = tenant


class StreamNotFound(BrokerError):
    """No stream of this number, or none in this tenant."""

    def __init__(self, id: int) -> None:  # noqa: A002 - it is the stream's id
        super().__init__(f"Stream {id} not found")
        self.id = id


class TooFast(BrokerError):
    """A tenant asks for more than its rate allows; later it may."""


class QuotaReached(LimitReached):
    """A tenant has as much as it may have."""
