"""The topics of a journal, created at the first start, and checked at every start.

Records that Kafka has acknowledged must not be lost. So a topic that could lose them is refused, unless the address has
`allow_unsafe=true`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it exports them without saying so
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock.log.errors import LogError, LogUnavailable
from penstock.log.kafka.checkpoint import JournalSource
from penstock.log.kafka.client import snapshots_topic
from penstock.log.kafka.snapshot_topic import PIECE_BYTES
from penstock.log.kafka.url import InvalidAddress, KafkaAddress

logger = logging.getLogger(__name__)

SECONDS: Final = 15.0
CELL: Final = 0
KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Kafka removes nothing of a journal by itself."""
SNAPSHOTS: Final = {"cleanup.policy": "compact"}
OFTEN: Final = {"segment.ms": "3600000", "segment.bytes": str(64 << 20), "min.cleanable.dirty.ratio": "0.2"}
"""Old snapshots are removed within hours."""


class NoSuchTopic(LogError):
    """There is no journal with that name."""


class UnsafeTopic(LogError):
    """The topic could lose acknowledged records, or cannot hold records of the log's size."""


class TopicSpec(NamedTuple):
    name: str
    message_bytes: int
    required: Mapping[str, str]  # settings, checked at every start
    initial: Mapping[str, str]  # settings for its creation, which may be changed later
    advice: str


def specs(address: KafkaAddress, message_bytes: int) -> tuple[TopicSpec, ...]:
    advice = "raise it"
    return (
        TopicSpec(address.topic, message_bytes, KEPT, {}, f"{advice}, or lower log.entry_bytes"),
        TopicSpec(snapshots_topic(address.topic), 2 * PIECE_BYTES, SNAPSHOTS, OFTEN, advice),
    )


def ensure_topics(address: KafkaAddress, message_bytes: int, *, create: bool = True) -> JournalSource:
    """Create the topics of the journal and of its snapshots if they are missing, check them, and return their identity.
    Raises LogUnavailable, UnsafeTopic, or NoSuchTopic if nothing is to be created; blocks."""
    refusals: list[str] = []

    def on_error(error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            refusals.append(error.str())

    options: dict[str, Any] = {
        **address.client_options(),
        "log.connection.close": False,
        "logger": logger,
        "error_cb": on_error,
    }
    try:
        admin = AdminClient(options)
    except KafkaException as error:
        raise InvalidAddress(f"Kafka's client refuses an option of the address: {error.args[0].str()}") from None
    try:
        problems: list[tuple[str, str, bool]] = []
        for spec in specs(address, message_bytes):
            found = _describe(admin, spec.name)
            if found is None:
                if not create and spec.name == address.topic:
                    raise NoSuchTopic(f"Kafka at {address.servers} has no topic {spec.name}: there is no such journal")
                _create(admin, address, spec)
                found = _await_topic(admin, spec.name)
            if spec.name == address.topic:
                journal = found
            problems += [(spec.name, *each) for each in _problems(found, _config(admin, spec.name), spec)]
        cluster = admin.describe_cluster(request_timeout=SECONDS).result(SECONDS).cluster_id
    except (KafkaException, TimeoutError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else f"no answer within {SECONDS:g} s"
        admin.poll(0)  # runs callbacks
        if refusals:
            reason = f"the connection was refused: {refusals[0]}"
        raise LogUnavailable(f"Kafka at {address.servers} does not answer: {reason}") from None
    for topic, text, unsafe in problems:
        if not unsafe or not address.allow_unsafe:
            advice = ". To take the risk: allow_unsafe=true in the address" if unsafe else ""
            raise UnsafeTopic(f"Kafka's topic {topic}: {text}{advice}")
        logger.warning("Kafka's topic %s: %s", topic, text)
    return JournalSource(str(cluster), str(journal.topic_id), address.name, CELL)


def _describe(admin: AdminClient, topic: str) -> Any:
    """The description of a topic; None if it does not exist."""
    future = admin.describe_topics(TopicCollection([topic]), request_timeout=SECONDS)[topic]
    try:
        return future.result(SECONDS)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def _create(admin: AdminClient, address: KafkaAddress, spec: TopicSpec) -> None:
    config = {
        **spec.required,
        **spec.initial,
        "min.insync.replicas": str(address.min_insync),
        "max.message.bytes": str(spec.message_bytes),
        "unclean.leader.election.enable": "false",
        "message.timestamp.type": "CreateTime",
    }
    new = NewTopic(spec.name, 1, address.replication, config=config)
    try:
        admin.create_topics([new], request_timeout=SECONDS)[spec.name].result(SECONDS)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return  # another broker was faster
        if error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR:
            raise UnsafeTopic(
                f"Kafka's topic {spec.name} cannot be kept {address.replication} times: {error.args[0].str()} "
                "For a cluster of one node: ?replication=1&min_insync=1&allow_unsafe=true"
            ) from None
        raise


def _await_topic(admin: AdminClient, topic: str) -> Any:
    """Wait until the topic is visible: not every node knows it immediately."""
    give_up = time.monotonic() + SECONDS
    while (found := _describe(admin, topic)) is None:
        if time.monotonic() > give_up:
            raise LogUnavailable(f"Kafka does not know {topic}, which it has made, after {SECONDS:g} s")
        time.sleep(0.1)
    return found


def _config(admin: AdminClient, topic: str) -> dict[str, str]:
    """The configuration of an existing topic, which some nodes may not know yet."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    give_up = time.monotonic() + SECONDS
    while True:
        try:
            entries = admin.describe_configs([resource], request_timeout=SECONDS)[resource].result(SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > give_up:
                raise
            time.sleep(0.1)
        else:
            return {name: str(entry.value) for name, entry in entries.items()}


def _problems(found: Any, config: Mapping[str, str], spec: TopicSpec) -> Iterator[tuple[str, bool]]:
    """The problems of a topic, each with whether it is a risk that may be accepted."""
    if len(found.partitions) <= CELL:
        yield f"it has {len(found.partitions)} partitions", False
    copies = min(len(partition.replicas) for partition in found.partitions)
    least = int(config["min.insync.replicas"])
    if copies < 2 or least < 2:
        yield f"it is kept {copies} times, and {least} are enough for an acknowledgement: one loss can lose it", True
    if config["unclean.leader.election.enable"] != "false":
        yield "unclean.leader.election.enable is on: a node that has not everything may become its leader", True
    for name, wanted in spec.required.items():
        if config[name] != wanted:
            yield f"{name} is {config[name]}, and not {wanted}: Kafka would remove what is needed", True
    most = config["max.message.bytes"]
    if int(most) < spec.message_bytes:
        yield f"max.message.bytes is {most}, and records may have {spec.message_bytes}: {spec.advice}", False
