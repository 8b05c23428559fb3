"""The topic of a journal: made at the first start, and looked at by every start.

What Kafka has acknowledged must not be lost, or the journal would lose it. So a topic that could lose it is refused,
unless the address says `allow_unsafe=true`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it exports them without saying so
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock.log.errors import LogError, LogUnavailable
from penstock.log.kafka.checkpoint import Source
from penstock.log.kafka.url import KafkaAddress

logger = logging.getLogger(__name__)

SECONDS: Final = 15.0
CELL: Final = 0
KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Kafka removes nothing by itself."""


class UnsafeTopic(LogError):
    """The topic could lose what was acknowledged, or cannot hold what the log writes."""


def ensure_topic(address: KafkaAddress, message_bytes: int) -> Source:
    """Make the journal's topic if there is none, check it, and tell whose it is. Raises LogUnavailable or
    UnsafeTopic; blocks."""
    options: dict[str, Any] = {**address.client_options(), "log.connection.close": False, "logger": logger}
    admin = AdminClient(options)
    try:
        found = _describe(admin, address.topic)
        if found is None:
            _create(admin, address, message_bytes)
            found = _await_topic(admin, address.topic)
        problems = list(_problems(found, _config(admin, address.topic), message_bytes))
        cluster = admin.describe_cluster(request_timeout=SECONDS).result(SECONDS).cluster_id
    except KafkaException as error:
        raise LogUnavailable(f"Kafka at {address.servers} does not answer: {error.args[0].str()}") from None
    except TimeoutError:
        raise LogUnavailable(f"Kafka at {address.servers} does not answer within {SECONDS:g} s") from None
    for text, unsafe in problems:
        if not unsafe or not address.allow_unsafe:
            advice = ". To take the risk: allow_unsafe=true in the address" if unsafe else ""
            raise UnsafeTopic(f"Kafka's topic {address.topic}: {text}{advice}")
        logger.warning("Kafka's topic %s: %s", address.topic, text)
    return Source(str(cluster), str(found.topic_id), address.name, CELL)


def _describe(admin: AdminClient, topic: str) -> Any:
    """None if there is no such topic."""
    future = admin.describe_topics(TopicCollection([topic]), request_timeout=SECONDS)[topic]
    try:
        return future.result(SECONDS)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def _create(admin: AdminClient, address: KafkaAddress, message_bytes: int) -> None:
    config = {
        **KEPT,
        "min.insync.replicas": str(address.min_insync),
        "max.message.bytes": str(message_bytes),
        "unclean.leader.election.enable": "false",
        "message.timestamp.type": "CreateTime",
    }
    new = NewTopic(address.topic, 1, address.replication, config=config)
    try:
        admin.create_topics([new], request_timeout=SECONDS)[address.topic].result(SECONDS)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return  # another broker was quicker
        if error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR:
            raise UnsafeTopic(
                f"Kafka's topic {address.topic} cannot be kept {address.replication} times: {error.args[0].str()} "
                "For a cluster of one node: ?replication=1&min_insync=1&allow_unsafe=true"
            ) from None
        raise


def _await_topic(admin: AdminClient, topic: str) -> Any:
    """Not every node knows of it at once."""
    give_up = time.monotonic() + SECONDS
    while (found := _describe(admin, topic)) is None:
        if time.monotonic() > give_up:
            raise LogUnavailable(f"Kafka does not know {topic}, which it has made, after {SECONDS:g} s")
        time.sleep(0.1)
    return found


def _config(admin: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource], request_timeout=SECONDS)[resource].result(SECONDS)
    return {name: str(entry.value) for name, entry in entries.items()}


def _problems(found: Any, config: Mapping[str, str], message_bytes: int) -> Iterator[tuple[str, bool]]:
    """Each with whether it is a risk that may be taken."""
    if len(found.partitions) <= CELL:
        yield f"it has {len(found.partitions)} partitions", False
    copies = min(len(partition.replicas) for partition in found.partitions)
    least = int(config["min.insync.replicas"])
    if copies < 2 or least < 2:
        yield f"it is kept {copies} times, and {least} are enough for an acknowledgement: one loss can lose it", True
    if config["unclean.leader.election.enable"] != "false":
        yield "unclean.leader.election.enable is on: a node that has not everything may become its leader", True
    for name, wanted in KEPT.items():
        if config[name] != wanted:
            yield f"{name} is {config[name]}, and not {wanted}: Kafka would remove what is needed", True
    most = config["max.message.bytes"]
    if int(most) < message_bytes:
        yield f"max.message.bytes is {most}, and groups may have {message_bytes}: lower log.entry_bytes", False
