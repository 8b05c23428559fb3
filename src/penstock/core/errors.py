"""What `core` can answer instead of a result. Each protocol maps these to its own codes, in one table of its own.

Errors of the log (`penstock.log.errors`) pass through unchanged and belong to the same table.
"""

from __future__ import annotations


class BrokerError(Exception):
    """Any refusal by `core`."""


class InvalidName(BrokerError):
    """A name that no topic, group, tenant or namespace may have."""


class InvalidArgument(BrokerError):
    """A value outside its range."""


class TopicNotFound(BrokerError):
    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic '{topic}' not found")
        self.topic = topic


class TopicExists(BrokerError):
    def __init__(self, topic: str, partitions: int) -> None:
        super().__init__(f"Topic '{topic}' already exists")
        self.topic = topic
        self.partitions = partitions


class PartitionNotFound(BrokerError):
    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        super().__init__(f"Partition {partition} not found in topic '{topic}'")
        self.topic = topic
        self.partition = partition
        self.partitions = partitions


class QueueNotFound(BrokerError):
    """No such queue, or none that this identity may use."""


class KeyNotFound(BrokerError):
    """No API key has this number."""


class RecordTooLarge(BrokerError):
    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"Record of {size} bytes is larger than the limit of {limit} bytes")
        self.size = size
        self.limit = limit


class AccessDenied(BrokerError):
    """The identity may not do this."""


class ShuttingDown(BrokerError):
    """The broker takes no more requests."""


class InvalidPartitionCount(InvalidArgument):
    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"Invalid partition count: {count}; 1 to {limit} are allowed")
        self.count = count
        self.limit = limit


class LimitReached(BrokerError):
    """One more would be over a limit of the broker."""


class StateUnreadable(BrokerError):
    """The log holds state that this version does not understand, most likely written by a newer one."""
