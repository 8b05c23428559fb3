"""The JSON documents of FlyMQ's administration, with the original's fields and names. Fields without a meaning on one
node, or without a value here, are omitted."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec


class Node(msgspec.Struct):
    id: str
    address: str
    state: str
    is_leader: bool
    last_seen: str


class Cluster(msgspec.Struct):
    cluster_id: str
    version: str
    node_count: int
    leader_id: str
    topic_count: int
    partition_count: int
    nodes: list[Node]


class Partition(msgspec.Struct):
    partition: int
    leader_id: str
    leader_addr: str
    epoch: int
    state: str
    replicas: list[str]
    isr: list[str]


class TopicPartitions(msgspec.Struct):
    topic: str
    partitions: list[Partition]


class Assignment(msgspec.Struct):
    topic: str
    partition: int
    leader: str
    leader_addr: str
    replicas: list[str]
    isr: list[str]
    epoch: int
    state: str


class Leaders(msgspec.Struct):
    distribution: dict[str, int]
    total_partitions: int
    imbalance_ratio: float


class Rebalanced(msgspec.Struct):
    success: bool
    message: str
    moves: list[str]
    old_leaders: dict[str, int]
    new_leaders: dict[str, int]


class Reassignment(msgspec.Struct):
    """The body of a reassignment."""

    new_leader: str
    new_replicas: list[str] = []


class Reassigned(msgspec.Struct):
    success: bool
    message: str


class Topic(msgspec.Struct, omit_defaults=True):
    name: str
    partitions: int
    replica_factor: int
    message_count: int
    created_at: str
    retention_bytes: int | None = None  # only if set for this topic
    retention_ms: int | None = None


class TopicOptions(msgspec.Struct):
    """Options of a new topic. The original has more, but uses only this one."""

    partitions: int = 1


class NewTopic(msgspec.Struct):
    """The body for creating a topic. The original's server has the number of partitions in the options, its
    documentation next to the name."""

    name: str
    options: TopicOptions | None = None
    partitions: int | None = None


class PartitionLag(msgspec.Struct):
    partition: int
    offset: int
    lag: int


class Group(msgspec.Struct):
    name: str
    topic: str
    members: int
    state: str
    lag: int
    partitions: list[PartitionLag]


class Schema(msgspec.Struct, omit_defaults=True):
    name: str
    version: int
    type: str
    schema: str | None = None  # its definition; not in a list


class Check(msgspec.Struct):
    name: str
    status: str
    message: str = ""


class Health(msgspec.Struct, omit_defaults=True):
    status: str
    timestamp: str
    version: str
    checks: list[Check] | None = None


class TopicFilter(msgspec.Struct):
    """The query that selects one topic; empty: all."""

    topic: str = ""


def timestamp(us: int) -> str:
    """A time in µs since 1970, in the original's format."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
