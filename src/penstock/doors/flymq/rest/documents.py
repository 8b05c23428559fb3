"""The JSON documents of FlyMQ's administration: fields and names are the original's. What has no meaning on one node,
or is not known here, is left out."""

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
    retention_bytes: int | None = None  # of a topic that says so itself
    retention_ms: int | None = None


class TopicOptions(msgspec.Struct):
    """Of a new topic. The original has more of them, and looks at this one."""

    partitions: int = 1


class NewTopic(msgspec.Struct):
    """The body that makes a topic. The number of partitions is among the options in the original's server, and beside
    the name in its documents."""

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
    """The query that picks one topic; empty: all."""

    topic: str = ""


def timestamp(us: int) -> str:
    """A time in µs since 1970, as the original writes times."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
