"""Options of the source, `.option(…)`: names, defaults, precedence and errors, identical to Spark's Kafka source for
common ones. Pure: no broker and no Spark needed.

Spark passes option names in lower case; any case is accepted, and the prefix `penstock.` too, like `kafka.` by the
Kafka source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, Literal, NamedTuple

from penstock.flight.log import TopicPartition
from penstock.flight.options import parse
from penstock.spark.kafka_options import ALWAYS_SO, RENAMED, equivalent

CONNECTION: Final = (
    "path",
    "bootstrap.servers",
    "user",
    "password",
    "api.key",
    "tenant",
    "namespace",
)
CONNECTION_PREFIXES: Final = ("tls.", "tables.")
CREDENTIALS: Final = ("password", "api.key", "tables.")
"""Options that are credentials, or may be: beginnings of their names."""
SELECTING: Final = ("subscribe", "subscribePattern", "assign")
STARTING: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
"""Options for the start, in order of precedence."""
ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
READING: Final = (
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "includeDoor",
    "emptyValues",
    "group.id",
    "partition.metadata.cache.ttl.ms",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "pollTimeoutMs",
    "retryTimeout",
)
WRITING: Final = ("topic", "txnAppId", "txnVersion", "nullValues")
NAMES: Final = (*CONNECTION, *SELECTING, *STARTING, *ENDING, *READING, *WRITING)

PREFIX: Final = "penstock."
STREAM_OUTAGE_MS: Final = 120_000  # tolerated at most: streams run unattended
BATCH_OUTAGE_MS: Final = 30_000  # a user may be waiting, or may have misspelt the address
WITHOUT_ANY: Final = (
    ". There is no option at all: of a table, Spark passes them to a source in Python only if CREATE TABLE name USING "
    "penstock OPTIONS (…) names no columns and is no CREATE TABLE … AS SELECT. So leave the columns out; or give the "
    "options in the query, SELECT … FROM name WITH (…); or CREATE TEMPORARY VIEW name USING penstock OPTIONS (…); "
    "penstock.spark.catalog() makes a view for each topic"
)
EARLIEST: Final = -2
LATEST: Final = -1

_LOOKS_LIKE_OURS: Final = re.compile(
    r"(starting|ending|subscri|assign|(max|min)[a-z]*(per|trigger|part|offset|record|byte)|failon|include|fetchoffset"
    r"|poll|group\.|partition\.|bootstrap|txn|kafka\.)"
)
_CANONICAL: Final = {name.lower(): name for name in NAMES}
_UNITS_OF_TIME: Final = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_OF_SIZE: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class OptionRefused(ValueError):
    """An option, or a combination of options, that is not allowed; the text names it, and what is allowed."""


class OptionValues:
    """The user's options, by name in any case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._by_name: dict[str, str] = {}
        for given, text in options.items():
            name = given.lower().removeprefix(PREFIX)
            name = RENAMED.get(name, name).lower()
            if self._by_name.setdefault(name, str(text)) != str(text):
                raise OptionRefused(
                    f"Option {given!r} is {text!r}, and under another name {self._by_name[name]!r}; give one of them"
                )

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._by_name

    def names(self) -> list[str]:
        """In lower case."""
        return list(self._by_name)

    def text(self, name: str) -> str | None:
        return self._by_name.get(name.lower())

    def refused(self, name: str, allowed: str) -> OptionRefused:
        return OptionRefused(f"Option {name!r} is {self.text(name)!r}; {allowed}")

    def number(self, name: str, default: int | None, least: int) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        try:
            number = int(text)
        except ValueError:
            raise self.refused(name, f"a whole number of at least {least} is allowed") from None
        if number < least:
            raise self.refused(name, f"a whole number of at least {least} is allowed")
        return number

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise self.refused(name, "'true' or 'false' is allowed")
        return text.lower() == "true"

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """One of these words; the first is the default."""
        text = (self.text(name) or allowed[0]).lower()
        if text not in allowed:
            raise self.refused(name, f"{' or '.join(map(repr, allowed))} is allowed")
        return text

    def milliseconds(self, name: str, default: int) -> int:
        """A duration in Spark's format: 15m, 10s, 1h, 500ms; a plain number is in ms."""
        text = self.text(name)
        if text is None:
            return default
        found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
        if found is None or (found[2] or "ms") not in _UNITS_OF_TIME:
            raise self.refused(name, "a time is allowed, for example '30s', '15m' or '500ms'")
        return int(int(found[1]) * _UNITS_OF_TIME[found[2] or "ms"])

    def size(self, name: str) -> int | None:
        """A number of bytes in Spark's format: 1000000, 64m, 1g."""
        text = self.text(name)
        if text is None:
            return None
        found = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", text.lower())
        if found is None or int(found[1]) == 0:
            raise self.refused(name, "a number of bytes above 0 is allowed, for example '1000000', '64m' or '1g'")
        return int(found[1]) * _UNITS_OF_SIZE[found[2]]

    def connection(self) -> dict[str, str]:
        """The connection options, address and credentials, for `flight.connect`. Raises OptionsUnusable too."""
        named = [name for name in ("path", "bootstrap.servers") if self.text(name)]
        if len(named) != 1:
            raise OptionRefused(
                f"{'Both' if named else 'None'} of the options 'bootstrap.servers' and 'path' given; give exactly "
                "one: 'bootstrap.servers' (host:port of a broker's Flight endpoint) or 'path' (a data directory "
                "that no broker is using)" + ("" if self._by_name else WITHOUT_ANY)
            )
        found = {
            name: text
            for name, text in self._by_name.items()
            if name in CONNECTION or name.startswith(CONNECTION_PREFIXES)
        }
        parse(found)
        return found

    def retries(self, default: int = STREAM_OUTAGE_MS) -> Retries:
        """The retries. There are none for a data directory: it is held by a broker that will keep running."""
        timeout = self.milliseconds("retryTimeout", 0 if "path" in self else default)
        return Retries(
            timeout,
            self.number("pollTimeoutMs", timeout, 1) or 0,
            self.number("fetchOffset.numRetries", 3, 0) or 0,
            self.number("fetchOffset.retryIntervalMs", 10, 0) or 0,
        )

    def check_names(self) -> None:
        """Refuse options that are probably misspelt names of ours. All others are ignored."""
        for name in self._by_name:
            if name in _CANONICAL or name.startswith(CONNECTION_PREFIXES):
                continue
            if (same := equivalent(name)) is not None:
                if self._by_name[name].lower() in ALWAYS_SO.get(name, ()):
                    continue
                raise OptionRefused(f"Option {name!r} is one of Spark's Kafka source; here the same is done by {same}")
            near = get_close_matches(name, _CANONICAL, n=1, cutoff=0.6)
            close = get_close_matches(name, _CANONICAL, n=1, cutoff=0.85)
            if close or _LOOKS_LIKE_OURS.match(name):
                hint = f"; did you mean {_CANONICAL[near[0]]!r}?" if near else f"; there are: {', '.join(NAMES)}"
                raise OptionRefused(f"Option {name!r} is not known{hint}")


class Retries(NamedTuple):
    """Retries while the log does not respond; times in ms."""

    timeout: int = 120_000  # maximum time in the driver,
    poll_timeout: int = 120_000  # and in tasks;
    at_least: int = 3  # minimum number of retries,
    interval: int = 10  # initial interval


class Selection(NamedTuple):
    """The partitions to read: of named topics, of topics that match a pattern, or these."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    def matching(self, topics: Iterable[str]) -> list[str]:
        """The topics that match the pattern."""
        assert self.pattern is not None
        pattern = re.compile(self.pattern)
        return sorted(topic for topic in topics if pattern.fullmatch(topic))


class OffsetSpec(NamedTuple):
    """A start or end position, as given by the user: not resolved to offsets yet."""

    kind: Literal["earliest", "latest", "offsets", "times", "time"]
    option: str  # that defined it
    by_partition: dict[TopicPartition, int] = {}  # noqa: RUF012 - never changed; offsets, or times in ms
    time: int = 0  # ms

    def encode(self) -> str | dict[str, object]:
        """For the start symbol in a stream's offset."""
        if self.kind in ("earliest", "latest"):
            return self.kind
        return {self.option: self.time if self.kind == "time" else nested(self.by_partition)}


class BatchLimits(NamedTuple):
    """Limits of a micro-batch: its size, and the wait for more records."""

    rows: int | None = None
    bytes: int | None = None
    least_rows: int | None = None
    longest_wait: int = 900_000  # ms


class SourceOptions(NamedTuple):
    connection: dict[str, str]
    selection: Selection
    starting: OffsetSpec
    ending: OffsetSpec  # of a batch; a stream has no end
    without_match: Literal["error", "latest"]  # if no record has the starting time or a later one
    limits: BatchLimits
    least_tasks: int | None
    most_rows_in_task: int | None
    fail_on_data_loss: bool
    group: str | None
    topics_live: int  # ms for which a list of topics is cached; -1: not at all
    retries: Retries
    empty_is_null: bool  # an empty value becomes null


def batch_options(options: Mapping[str, str]) -> SourceOptions:
    given = OptionValues(options)
    starting = _position(given, STARTING, "earliest")
    if starting.kind == "latest" or LATEST in _special(starting):
        raise OptionRefused(
            f"Option {starting.option!r} is {given.text(starting.option)!r}; a batch cannot begin at the latest "
            "offset (-1), because there is nothing behind it: allowed are 'earliest' and offsets of your choice"
        )
    ending = _position(given, ENDING, "latest")
    if ending.kind == "earliest" or EARLIEST in _special(ending):
        raise OptionRefused(
            f"Option {ending.option!r} is {given.text(ending.option)!r}; a batch cannot end at the earliest "
            "offset (-2), because there is nothing before it: allowed are 'latest' and offsets of your choice"
        )
    return _options(given, starting, ending, given.retries(BATCH_OUTAGE_MS))


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    given = OptionValues(options)
    for name in ENDING:
        if name in given:
            raise OptionRefused(f"Option {name!r} is for spark.read only: a stream has no end; leave it out")
    starting, ending = _position(given, STARTING, "latest"), OffsetSpec("latest", "endingOffsets")
    return _options(given, starting, ending, given.retries(STREAM_OUTAGE_MS))


INCLUDING: Final = {"includeHeaders": "headers", "includeDoor": "door"}
"""Options that add a column."""


def included(given: OptionValues) -> list[str]:
    """The columns that options add."""
    return [column for option, column in INCLUDING.items() if given.flag(option, False)]


def _options(given: OptionValues, starting: OffsetSpec, ending: OffsetSpec, retries: Retries) -> SourceOptions:
    given.check_names()
    included(given)
    strategy = (given.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in ("error", "latest"):
        raise given.refused("startingOffsetsByTimestampStrategy", "'error' or 'latest' is allowed")
    connection, group = given.connection(), given.text("group.id") or None
    if group is not None and "path" in connection:
        raise given.refused("group.id", "but the offsets of a group are kept by a broker: leave it out with 'path'")
    return SourceOptions(
        connection=connection,
        selection=_selection(given),
        starting=starting,
        ending=ending,
        without_match="latest" if strategy == "latest" else "error",
        limits=_limits(given),
        least_tasks=given.number("minPartitions", None, 1),
        most_rows_in_task=given.number("maxRecordsPerPartition", None, 1),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        group=group,
        topics_live=given.number("partition.metadata.cache.ttl.ms", -1, -1) or 0,
        retries=retries,
        empty_is_null=given.choice("emptyValues", ("empty", "null")) == "null",
    )


def _limits(given: OptionValues) -> BatchLimits:
    most, least = given.number("maxOffsetsPerTrigger", None, 1), given.number("minOffsetsPerTrigger", None, 1)
    if most is not None and least is not None and least > most:
        raise OptionRefused(
            f"Option 'minOffsetsPerTrigger' ({least}) is above 'maxOffsetsPerTrigger' ({most}); it must not be"
        )
    return BatchLimits(most, given.size("maxBytesPerTrigger"), least, given.milliseconds("maxTriggerDelay", 900_000))


def _selection(given: OptionValues) -> Selection:
    named = [name for name in SELECTING if name in given]
    if len(named) != 1:
        said = f"Options {' and '.join(map(repr, named))} given" if named else "No topic given"
        raise OptionRefused(
            f"{said}; give exactly one of 'subscribe' (topics with commas between them), 'subscribePattern' "
            "(a Python regular expression for whole names) and "
            """'assign' ({"topic":[0,1]})"""
        )
    text = given.text(named[0]) or ""
    if named[0] == "subscribe":
        topics = tuple(sorted({topic.strip() for topic in text.split(",")} - {""}))
        if not topics:
            raise given.refused("subscribe", "names of topics with commas between them are allowed")
        return Selection(topics=topics)
    if named[0] == "assign":
        return Selection(assigned=_assigned(given, text))
    try:
        re.compile(text)
    except re.error as error:
        raise given.refused("subscribePattern", f"a Python regular expression is allowed ({error})") from None
    if not text:
        raise given.refused("subscribePattern", "a Python regular expression that matches whole names is allowed")
    return Selection(pattern=text)


def _assigned(given: OptionValues, text: str) -> tuple[TopicPartition, ...]:
    allowed = 'JSON with the partitions of each topic is allowed, for example {"topic":[0,1]}'
    places = []
    for topic, partitions in _object(given, "assign", text, allowed).items():
        if not isinstance(partitions, list) or not all(type(one) is int and one >= 0 for one in partitions):
            raise given.refused("assign", allowed)
        places += [TopicPartition(topic, partition) for partition in partitions]
    if not places:
        raise given.refused("assign", allowed)
    return tuple(sorted(set(places)))


def _position(given: OptionValues, names: tuple[str, ...], default: Literal["earliest", "latest"]) -> OffsetSpec:
    """By precedence: one time for all partitions, times by partition, offsets."""
    one_time, times, offsets = names
    if one_time in given:
        return OffsetSpec("time", one_time, time=given.number(one_time, 0, 0) or 0)
    if times in given:
        allowed = 'JSON with a time in ms for each partition is allowed, for example {"topic":{"0":1700000000000}}'
        return OffsetSpec("times", times, _by_partition(given, times, allowed, least=0))
    text = given.text(offsets)
    if text is None:
        return OffsetSpec(default, offsets)
    if text.strip().lower() == "earliest":
        return OffsetSpec("earliest", offsets)
    if text.strip().lower() == "latest":
        return OffsetSpec("latest", offsets)
    allowed = (
        "'earliest', 'latest' or JSON with an offset for each partition is allowed, for example "
        '{"topic":{"0":23,"1":-2}}, where -2 is the earliest and -1 the latest'
    )
    return OffsetSpec("offsets", offsets, _by_partition(given, offsets, allowed, least=EARLIEST))


def _by_partition(given: OptionValues, name: str, allowed: str, least: int) -> dict[TopicPartition, int]:
    found = {}
    for topic, by_partition in _object(given, name, given.text(name) or "", allowed).items():
        if not isinstance(by_partition, dict):
            raise given.refused(name, allowed)
        for partition, number in by_partition.items():
            if not re.fullmatch(r"[0-9]{1,9}", partition) or type(number) is not int or number < least:
                raise given.refused(name, allowed)
            found[TopicPartition(topic, int(partition))] = number
    return found


def _object(given: OptionValues, name: str, text: str, allowed: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        raise given.refused(name, allowed) from None
    if not isinstance(found, dict):
        raise given.refused(name, allowed)
    return found


def _special(position: OffsetSpec) -> set[int]:
    return set(position.by_partition.values()) if position.kind == "offsets" else set()


def nested(by_partition: Mapping[TopicPartition, int]) -> dict[str, object]:
    """`{"topic": {"0": 23}}`, with topics and partitions in order, as Spark compares offsets as text."""
    found: dict[str, dict[str, int]] = {}
    for place in sorted(by_partition):
        found.setdefault(place.topic, {})[str(place.partition)] = by_partition[place]
    return dict(found)
