"""The errors of the broker. Each protocol maps them to its own codes, in one table.

Errors of the log (`penstock.log.errors`) pass through unchanged and are in the same tables. `docs/reference/errors.md`
is generated from the docstrings here.
"""

from __future__ import annotations

from collections.abc import Sequence


class BrokerError(Exception):
    """Any refusal by the broker."""


class InvalidName(BrokerError):
    """A name that is not allowed for a topic, group, tenant or namespace."""


class InvalidArgument(BrokerError):
    """A value outside its range."""


class TopicNotFound(BrokerError):
    """There is no topic with this name."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic '{topic}' not found")
        self.topic = topic


class TypedTableNotFound(BrokerError):
    """A topic has no typed table, because it has no schema."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"Topic '{topic}' has no schema, and so no typed table: `penstock topic set {topic} --schema NAME` sets one"
        )
        self.topic = topic


class TopicExists(BrokerError):
    """A topic with this name already exists."""

    def __init__(self, topic: str, partitions: int) -> None:
        super().__init__(f"Topic '{topic}' already exists")
        self.topic = topic
        self.partitions = partitions


class PartitionNotFound(BrokerError):
    """The topic has no partition with this number."""

    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        super().__init__(f"Partition {partition} not found in topic '{topic}'")
        self.topic = topic
        self.partition = partition
        self.partitions = partitions


class QueueNotFound(BrokerError):
    """There is no such queue, or none that this identity may use."""


class KeyNotFound(BrokerError):
    """There is no API key with this number."""


class GroupNotFound(BrokerError):
    """The group has no offsets and no members in this topic."""

    def __init__(self, group: str, topic: str) -> None:
        super().__init__(f"Group '{group}' has nothing in topic '{topic}'")
        self.group = group
        self.topic = topic


class SchemaNotFound(BrokerError):
    """There is no schema with this name, or it has no such version."""

    def __init__(self, name: str, version: int | None = None) -> None:
        super().__init__(f"Schema '{name}'{'' if version is None else f' version {version}'} not found")
        self.name = name
        self.version = version


class SchemaInvalid(BrokerError):
    """A definition that is not valid in its schema language."""


class SchemaIncompatible(BrokerError):
    """A schema version that is incompatible with earlier ones, at the subject's compatibility level."""


class RecordRejected(BrokerError):
    """A record that does not match its topic's schema. `reasons` are for the producer; `index` is its index in
    a batch.
    """

    def __init__(self, reasons: Sequence[str], index: int | None = None) -> None:
        which = "The record" if index is None else f"Record {index}"
        super().__init__(f"{which} does not fit its schema: " + "; ".join(reasons))
        self.reasons = list(reasons)
        self.index = index


class TransactionNotFound(BrokerError):
    """There is no transaction with this id, or it belongs to another client."""

    def __init__(self, id: str) -> None:  # noqa: A002 - it is the transaction's id
        super().__init__(f"transaction not found: {id[:100]}")
        self.id = id


class TransactionNotActive(BrokerError):
    """The transaction has ended or is being committed."""

    def __init__(self, state: str) -> None:
        super().__init__(f"transaction is not active: {state}")
        self.state = state


class TransactionTooLarge(BrokerError):
    """One more record would exceed the limits of a transaction."""


class StagedNotFound(BrokerError):
    """A staged file that does not belong to this publication, or was deleted."""

    def __init__(self, ref: str, reason: str = "not found") -> None:
        super().__init__(f"What was staged as '{ref[:100]}' cannot be published ({reason}): stage and publish it again")
        self.ref = ref


class DelayTooLong(InvalidArgument):
    """A delay longer than `topics.max_delay_seconds`."""

    def __init__(self, delay: int, limit: int) -> None:
        super().__init__(f"delay {delay / 1e6:g}s exceeds maximum allowed delay {limit / 1e6:g}s")
        self.delay = delay
        self.limit = limit


class DelayedNotFound(BrokerError):
    """No delayed record has this id: it was delivered, cancelled, or never existed."""

    def __init__(self, id: int) -> None:  # noqa: A002 - it is the id of what was delayed
        super().__init__(f"message not found: {id}")
        self.id = id


class DeadLetterNotFound(BrokerError):
    """There is no such dead letter: it was replayed, removed, or never existed."""

    def __init__(self, letter: int | str) -> None:
        super().__init__(f"message not found: {letter}")
        self.letter = letter


class UserNotFound(BrokerError):
    """The tenant has no user with this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"User '{name}' not found")
        self.name = name


class UserExists(BrokerError):
    """A user with this name already exists."""

    def __init__(self, name: str) -> None:
        super().__init__(f"User '{name}' already exists")
        self.name = name


class RoleNotFound(BrokerError):
    """There is no role with this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Role '{name}' not found")
        self.name = name


class WrongPassword(BrokerError):
    """The current password, required for this change, is wrong."""


class RecordTooLarge(BrokerError):
    """A record larger than `limits.record_bytes`."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"Record of {size} bytes is larger than the limit of {limit} bytes")
        self.size = size
        self.limit = limit


class RecordUnsendable(BrokerError):
    """A stored record that is larger than the largest frame of the reader's protocol."""

    def __init__(self, offset: int, size: int, limit: int) -> None:
        super().__init__(
            f"the record at offset {offset} has {size} bytes, and a frame carries {limit} at most;"
            f" the next one is at offset {offset + 1}"
        )
        self.offset = offset
        self.size = size


class AccessDenied(BrokerError):
    """The identity lacks the permission for this operation."""


class AuditOff(BrokerError):
    """There is no audit log: `security.audit` is off."""

    def __init__(self) -> None:
        super().__init__("The audit log is not kept: security.audit is off")


class ShuttingDown(BrokerError):
    """The broker is shutting down and accepts no more requests."""


class InvalidPartitionCount(InvalidArgument):
    """A topic with no partitions, or with too many."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"Invalid partition count: {count}; 1 to {limit} are allowed")
        self.count = count
        self.limit = limit


class LimitReached(BrokerError):
    """The request would exceed a limit of the broker."""


class StateUnreadable(BrokerError):
    """The log holds state that this version does not understand, most likely written by a newer one."""


class QueryError(BrokerError):
    """A statement that failed while running, or refers to something that does not exist."""


class QueryInvalid(QueryError):
    """A statement that is not valid SQL."""


class QueryTooLarge(QueryError):
    """A statement that exceeds the limits on time, memory or size of the result."""


class TableNotFound(QueryError):
    """The statement refers to a table that does not exist."""

    def __init__(self, table: str) -> None:
        super().__init__(f"Table '{table}' not found")
        self.table = table


class TableExists(QueryError):
    """CREATE TABLE for a table that already exists."""

    def __init__(self, table: str) -> None:
        super().__init__(f"Table '{table}' already exists")
        self.table = table


class PositionAhead(QueryError):
    """The log has not reached this position yet."""

    def __init__(self, position: int, head: int) -> None:
        super().__init__(f"Position {position} is ahead of the log, which is at {head}")
        self.position = position
        self.head = head


class PositionGone(QueryError):
    """Retention has removed some of the records that existed at this position."""


class DuplicateKey(QueryError):
    """A row with this primary key already exists."""


class QueriesOff(QueryError):
    """SQL is disabled, or temporarily unavailable."""


class TenantNotFound(BrokerError):
    """There is no such tenant."""

    def __init__(self, tenant: str) -> None:
        super().__init__(f"Tenant '{tenant}' not found")
        self.tenant = tenant


class TenantExists(BrokerError):
    """A tenant with this name is already registered under another label."""

    def __init__(self, tenant: str) -> None:
        super().__init__(f"Tenant '{tenant}' already exists under another label")
        self.tenant = tenant


class StreamNotFound(BrokerError):
    """There is no stream with this number, or none in this tenant."""

    def __init__(self, id: int) -> None:  # noqa: A002 - it is the stream's id
        super().__init__(f"Stream {id} not found")
        self.id = id


class TooFast(BrokerError):
    """The tenant exceeds its request rate; the client may retry later."""


class QuotaReached(LimitReached):
    """The tenant has reached its quota."""
