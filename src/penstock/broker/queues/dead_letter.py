"""Dead letters: the topic that holds them, and the headers that describe each; the one place where a record becomes a
dead letter.

The dead letters of a topic are a topic of their own, `<topic>.dlq`, with one partition. A letter is the record as it
was, with headers `dead-letter-…` added that say what happened to it. It has no schema (`topic_rules`): what fits
nowhere else is kept here, and is validated again when it is to leave for its topic.
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

SUFFIX: Final = DEAD_LETTERS  # what is added to the name of a topic
HEADER: Final = "dead-letter-"  # what the names of added headers begin with


def target(
    state: State, limits: Limits, topic: Topic, now: int, coming: Sequence[TopicCreated] = ()
) -> tuple[PartitionId | None, list[TopicCreated]]:
    """The partition for dead letters of `topic`, and the event that makes it if it is missing. `coming` are topics
    that are created in the same entry of the log. Raises LimitReached.

    None if there can be none: dead letters have no dead letters, and a name cannot get longer without end."""
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


def headers(original: Headers, told: Mapping[str, object]) -> Headers:
    """The headers of a letter: those the record had, and what is told about it (reason, attempts, topic, partition,
    offset, stored, given-up, …; times in µs since 1970). What the record itself brought by such names is left out."""
    return (*own_headers(original), *((HEADER + name, str(value).encode()) for name, value in told.items()))


def own_headers(of_letter: Headers) -> Headers:
    """The headers that the record had."""
    return tuple([pair for pair in of_letter if not pair[0].startswith(HEADER)])


class DeadLetter(NamedTuple):
    """A record that could not be delivered or accepted. What is told of it may be made up by whoever may write to the
    topic of dead letters: it is for people, and no right depends on it. Times in µs since 1970."""

    id: str  # unique, also if the dead letters are deleted and come into being again
    offset: int  # among the dead letters
    value: bytes
    key: bytes | None
    headers: Headers  # those that the record had
    reason: str
    attempts: int  # deliveries
    topic: str  # where it came from
    partition: int | None
    original_offset: int | None  # None: it was never accepted
    stored: int | None  # when it was
    given_up: int


def letters(topic: Topic, slices: Sequence[RecordSlice]) -> Iterator[DeadLetter]:
    """The dead letters in these records of the topic, which is one of dead letters."""
    for part in slices:
        columns = zip(part.values(), part.keys(), part.headers(), part.timestamps(), strict=True)
        for offset, (value, key, pairs, stamp) in enumerate(columns, part.base_offset):
            told = {name.removeprefix(HEADER): data for name, data in pairs if name.startswith(HEADER)}
            yield DeadLetter(
                letter_id(topic, offset),
                offset,
                value,
                key,
                own_headers(pairs),
                told.get("reason", b"").decode(errors="replace"),
                _number(told, "attempts") or 0,
                told.get("topic", topic.name.removesuffix(SUFFIX).encode()).decode(errors="replace"),
                _number(told, "partition"),
                _number(told, "offset"),
                _number(told, "stored"),
                _number(told, "given-up") or stamp,
            )


def letter_id(topic: Topic, offset: int) -> str:
    return f"{topic.id}-{offset}"


def _number(told: Mapping[str, bytes], name: str) -> int | None:
    data = told.get(name, b"")
    return int(data) if data.isdigit() and len(data) < 20 else None
