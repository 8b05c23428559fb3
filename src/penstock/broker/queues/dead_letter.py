"""Dead letters: the topic that holds them, and the headers that describe each. Every dead letter is made through this
module.

The dead letters of a topic are in a separate topic, `<topic>.dlq`, with one partition. A dead letter is the original
record with additional headers `dead-letter-…` that describe what happened to it. The topic has no schema
(`topic_rules`): it accepts what was rejected elsewhere, and a letter is validated again when it is replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.broker.errors import InvalidName
from penstock.broker.limits import Limits
from penstock.broker.names import DEAD_LETTERS, is_dead_letters
from penstock.broker.state.events import TopicCreated
from penstock.broker.state.state import State, Topic
from penstock.broker.topics import topic_rules
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.batch import Headers, RecordSlice
from penstock.log.engine import PartitionId, partition_id

SUFFIX: Final = DEAD_LETTERS  # appended to the name of a topic
HEADER: Final = "dead-letter-"  # prefix of the added headers


def target(
    state: State, limits: Limits, topic: Topic, now: int, coming: Sequence[TopicCreated] = ()
) -> tuple[PartitionId | None, list[TopicCreated]]:
    """The partition for dead letters of `topic`, and the event that creates it if it is missing. `coming` are topics
    that are created in the same entry of the log. Raises LimitReached.

    None if there can be none: dead letters have no dead letters themselves, and the name may be too long.
    """
    name = topic.name + SUFFIX
    if is_dead_letters(topic.name):
        return None, []
    existing = state.topics.get(topic.scope, {}).get(name)
    if existing is not None:
        return partition_id(existing.id, 0), []
    for created in coming:
        if (created.tenant, created.namespace, created.name) == (*topic.scope, name):
            return partition_id(created.id, 0), []
    try:
        settings = TopicSettings(data_class=topic.settings.data_class)
        created = topic_rules.create(state, limits, topic.scope, name, 1, settings, now, coming)
    except InvalidName:
        return None, []
    return partition_id(created.id, 0), [created]


def headers(original: Headers, details: Mapping[str, object]) -> Headers:
    """The headers of a dead letter: those of the record, and the given details (reason, attempts, topic, partition,
    offset, stored, given-up, …; times in µs since 1970). Headers of the record with the same prefix are dropped.
    """
    return (*own_headers(original), *((HEADER + name, str(value).encode()) for name, value in details.items()))


def own_headers(of_letter: Headers) -> Headers:
    """The original headers of the record."""
    return tuple([pair for pair in of_letter if not pair[0].startswith(HEADER)])


class DeadLetter(NamedTuple):
    """A record that could not be delivered or accepted. The details come from its headers, which anyone who may write
    to the dead-letter topic can forge: they are informational, and no permission depends on them. Times in µs since
    1970.
    """

    id: str  # unique, even if the dead-letter topic is deleted and created again
    offset: int  # in the dead-letter topic
    value: bytes
    key: bytes | None
    headers: Headers  # of the original record
    reason: str
    attempts: int  # deliveries
    topic: str  # its original topic
    partition: int | None
    original_offset: int | None  # None: it was never accepted
    stored: int | None  # when it was appended to its original topic
    given_up: int


def letters(topic: Topic, slices: Sequence[RecordSlice]) -> Iterator[DeadLetter]:
    """The dead letters in these records of a dead-letter topic."""
    for part in slices:
        columns = zip(part.values(), part.keys(), part.headers(), part.timestamps(), strict=True)
        for offset, (value, key, pairs, stamp) in enumerate(columns, part.base_offset):
            details = {name.removeprefix(HEADER): data for name, data in pairs if name.startswith(HEADER)}
            yield DeadLetter(
                letter_id(topic, offset),
                offset,
                value,
                key,
                own_headers(pairs),
                details.get("reason", b"").decode(errors="replace"),
                _number(details, "attempts") or 0,
                details.get("topic", topic.name.removesuffix(SUFFIX).encode()).decode(errors="replace"),
                _number(details, "partition"),
                _number(details, "offset"),
                _number(details, "stored"),
                _number(details, "given-up") or stamp,
            )


def letter_id(topic: Topic, offset: int) -> str:
    return f"{topic.id}-{offset}"


def _number(details: Mapping[str, bytes], name: str) -> int | None:
    data = details.get(name, b"")
    return int(data) if data.isdigit() and len(data) < 20 else None
