"""Kafka at either end of a mirror, through confluent-kafka (librdkafka): keys, headers, timestamps and partitions.

A source only returns committed records. A destination stores each batch in one transaction with the mirror's progress;
the transactional id fences off an earlier run of the same mirror.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from penstock.clients._core.errors import ConnectionFailed, OutcomeUnknown, PenstockError, ReplyError
from penstock.mirror.ends import MAX_BYTES, Destination, MirrorBatch, Part, Source
from penstock.mirror.errors import MirrorError
from penstock.mirror.records import Chunk, MirrorRecord
from penstock.mirror.url import Location

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # exported, but not declared
except ImportError:
    raise MirrorError("kafka:// needs confluent-kafka: pip install 'penstock[kafka]'") from None

logger = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 30.0
LARGEST_RECORD: Final = 100 << 20  # of the client; the cluster has its own limit
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROGRESS_CONFIG: Final = {"cleanup.policy": "compact"}  # keeps the last record forever
PROGRESS_KEY: Final = b"progress"
FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
UNREACHABLE: Final = (
    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE, KafkaError._TIMED_OUT_QUEUE,
)  # fmt: skip


def client_options(location: Location) -> dict[str, Any]:
    """librdkafka's options for a URL. Raises MirrorError."""
    tls = bool(location.options.get("ca")) or location.options.get("tls") in ("1", "on", "true", "")
    options: dict[str, Any] = {
        "bootstrap.servers": ",".join(map(str, (location.address, *location.others))),
        "security.protocol": ("SASL_" if location.user else "") + ("SSL" if tls else "PLAINTEXT"),
        "client.id": "penstock-mirror",
        "reconnect.backoff.max.ms": 1000,
        "log.connection.close": False,
        "logger": logger,
    }
    if ca := location.options.get("ca"):
        options["ssl.ca.location"] = ca
    if location.user:
        mechanism = location.options.get("mechanism", "PLAIN")
        if mechanism not in MECHANISMS:
            raise MirrorError(f"{location.name}: mechanism is one of {', '.join(MECHANISMS)}")
        options |= {"sasl.mechanism": mechanism, "sasl.username": location.user, "sasl.password": location.secret}
    elif location.secret is not None:
        raise MirrorError(f"{location.name}: a password needs a user: kafka://USER@{location.address}")
    return options


@contextlib.contextmanager
def _errors(location: Location, *, writing: bool = False) -> Iterator[None]:
    """Convert Kafka's errors to those that a mirror handles."""
    try:
        yield
    except KafkaException as error:
        _raise(location, error.args[0], writing)


def _raise(location: Location, error: KafkaError, writing: bool = False) -> NoReturn:
    text = f"{location.name}: {error.str()}"
    if error.code() in FENCED:
        raise MirrorError(f"{location.name}: another mirror of this topic has taken over")
    if error.code() in UNREACHABLE or error.retriable():
        raise OutcomeUnknown(text) if writing else ConnectionFailed(text)
    raise ReplyError(text)


class _Reader:
    """A consumer of one partition at a time: switching to another takes a request."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._trouble = ""  # the last connection error
        self._next: tuple[str, int, int] | None = None  # topic, partition and offset of the next message
        self._held: Message | None = None  # already polled, for the next read
        self._at_end = False  # there was nothing after the last message
        options = client_options(location) | {
            "group.id": "penstock-mirror",  # required, but never joined: partitions are assigned manually
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            "queued.max.messages.kbytes": 8 << 10,
            "fetch.max.bytes": LARGEST_RECORD,
            "receive.message.max.bytes": LARGEST_RECORD + (1 << 20),
            "error_cb": self._note_trouble,
        }
        with _errors(location):
            self._consumer = Consumer(options)

    def _note_trouble(self, error: KafkaError) -> None:
        self._trouble = error.str()

    def topics(self) -> dict[str, int]:
        """All topics except Kafka's internal ones, with their number of partitions."""
        with self._requests():
            found = self._consumer.list_topics(timeout=REQUEST_SECONDS).topics
        return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        with self._requests():
            found = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=REQUEST_SECONDS)
        if found is None:
            raise self._no_answer()
        return found

    def offset_at(self, topic: str, partition: int, moment_ms: int) -> int:
        with self._requests():
            request = [TopicPartition(topic, partition, moment_ms)]
            (found,) = self._consumer.offsets_for_times(request, timeout=REQUEST_SECONDS)
        return found.offset if found.offset >= 0 else self.bounds(topic, partition)[1]

    def read(self, topic: str, partition: int, offset: int, limit: int, wait: float) -> tuple[list[Message], int]:
        """Messages from an offset on, and the next offset to read; none if none arrive within `wait` seconds."""
        until = time.monotonic() + wait
        if self._next != (topic, partition, offset):
            if not wait and offset == self.bounds(topic, partition)[1]:
                return [], offset  # not worth switching to it
            with self._requests():
                self._consumer.assign([TopicPartition(topic, partition, offset)])
            self._held, self._at_end = None, False
        self._next = None  # until this succeeds
        while True:
            left = max(0.0, until - time.monotonic())
            message = self._take(left if self._at_end else max(left, REQUEST_SECONDS))
            error = None if message is None else message.error()
            if message is None:
                if not self._at_end:
                    raise self._no_answer()
            elif error is None:
                self._at_end = False
                messages = self._collect(message, limit)
                return messages, self._go_on(topic, partition, (messages[-1].offset() or 0) + 1)
            elif error.code() == KafkaError._PARTITION_EOF:  # reported once, each time the end is reached
                self._at_end = True
                offset = max(offset, message.offset() or 0)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                return [], self._reset(topic, partition, offset)
            else:
                _raise(self._location, error)
            if self._at_end and time.monotonic() >= until:
                return [], self._go_on(topic, partition, offset)

    def _go_on(self, topic: str, partition: int, offset: int) -> int:
        self._next = (topic, partition, offset)
        return offset

    def _take(self, seconds: float) -> Message | None:
        message, self._held = self._held, None
        return self._consumer.poll(seconds) if message is None else message

    def _collect(self, first: Message, limit: int) -> list[Message]:
        """The first message and those after it that are already received, as many as fit into a batch."""
        messages, size = [first], _size(first)
        while len(messages) < limit and (message := self._consumer.poll(0)) is not None:
            size += _size(message)
            if message.error() is not None or size > MAX_BYTES:
                self._held = message
                break
            messages.append(message)
        return messages

    def _reset(self, topic: str, partition: int, offset: int) -> int:
        """The offset to continue with if this one is out of range. Raises MirrorError if the topic is shorter than
        before."""
        first, end = self.bounds(topic, partition)
        if offset > end:
            raise MirrorError(
                f"{topic}/{partition} ends at offset {end}, and this mirror was at {offset}: "
                "the topic was created anew; mirror it to another name"
            )
        return first

    @contextlib.contextmanager
    def _requests(self) -> Iterator[None]:
        self._trouble = ""
        try:
            with _errors(self._location):
                yield
        except PenstockError as error:
            raise type(error)(f"{error}: {self._trouble}" if self._trouble else str(error)) from None

    def _no_answer(self) -> ConnectionFailed:
        return ConnectionFailed(f"{self._location.name}: {self._trouble or f'no answer within {REQUEST_SECONDS:g} s'}")

    def close(self) -> None:
        self._consumer.close()


def _size(message: Message) -> int:
    return len(message) + len(message.key() or b"")  # `len` of a message is that of its value


class KafkaSource(Source):
    carries = frozenset[Part]({"keys", "headers", "partitions", "times"})

    def __init__(self, location: Location) -> None:
        self._reader = _Reader(location)

    def topics(self) -> list[str]:
        return sorted(self._reader.topics())

    def partitions(self, topic: str) -> int:
        found = self._reader.topics().get(topic)
        if not found:
            raise MirrorError(f"there is no topic {topic!r} to be mirrored")
        return found

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        return self._reader.bounds(topic, partition)

    def offset_at(self, topic: str, partition: int, moment: int) -> int:
        return self._reader.offset_at(topic, partition, moment // 1000)

    def read(self, topic: str, partition: int, offset: int, limit: int, wait: float) -> Chunk:
        messages, after = self._reader.read(topic, partition, offset, limit, wait)
        return Chunk([_record(each) for each in messages], after)

    def close(self) -> None:
        self._reader.close()


def _record(message: Message) -> MirrorRecord:
    value: Any = message.value()
    key: Any = message.key()
    headers: Any = message.headers() or []
    kind, milliseconds = message.timestamp()
    return MirrorRecord(
        message.offset() or 0,
        b"" if value is None else value,
        key,
        tuple((name, content or b"") for name, content in headers),
        milliseconds * 1000 if kind else None,
        tombstone=value is None,
    )


class KafkaDestination(Destination):
    carries = frozenset[Part]({"keys", "headers", "partitions", "times"})
    transactional = True

    def __init__(self, location: Location) -> None:
        self._location = location
        self._reader = _Reader(location)
        with _errors(location):
            self._admin = AdminClient(client_options(location))
        self._producers: dict[str, Producer] = {}  # by transactional id: one for each mirrored topic

    def create(self, topic: str, partitions: int) -> int:
        return self._create(topic, partitions, {})

    def create_progress(self, topic: str) -> None:
        self._create(topic, 1, PROGRESS_CONFIG)

    def _create(self, topic: str, partitions: int, config: dict[str, str]) -> int:
        if found := self._reader.topics().get(topic):
            return found
        with _errors(self._location):
            try:
                future = self._admin.create_topics([NewTopic(topic, partitions, config=config)])[topic]
                future.result(REQUEST_SECONDS)
            except TimeoutError:
                raise ConnectionFailed(f"{self._location.name}: no answer within {REQUEST_SECONDS:g} s") from None
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        give_up = time.monotonic() + REQUEST_SECONDS
        while not (found := self._reader.topics().get(topic)):  # not every node knows it at once
            if time.monotonic() > give_up:
                raise ConnectionFailed(f"{self._location.name}: {topic} was created and does not show up")
            time.sleep(0.1)
        return found

    def last(self, topic: str, partition: int) -> bytes | None:
        """Searches backwards from the end, where transaction markers take offsets without being records."""
        first, end = self._reader.bounds(topic, partition)
        span = 16
        while first < end:
            start = max(first, end - span)
            found: bytes | None = None
            while start < end:
                messages, start = self._reader.read(topic, partition, start, span, 0.0)
                if not messages:
                    break
                found = messages[-1].value()
            if found is not None or end - span <= first:
                return found
            span *= 4
        return None

    # -- transactions

    def fence(self, target: str, producer: str) -> None:
        transactional_id = self._transactional_id(target, producer)
        if transactional_id in self._producers:
            return
        options = client_options(self._location) | {
            "transactional.id": transactional_id,  # implies idempotent, acks=all
            "message.max.bytes": LARGEST_RECORD,
            "linger.ms": 5,
        }
        with _errors(self._location):
            found = Producer(options)
            found.init_transactions(REQUEST_SECONDS)
        self._producers[transactional_id] = found

    @staticmethod
    def _transactional_id(target: str, producer: str) -> str:
        """One for all partitions of a topic: two runs of the same mirror share it."""
        return f"penstock-{producer.rpartition('-')[0]}-{target}"

    def write(self, batch: MirrorBatch) -> None:
        self._write(batch, None, b"")

    def write_with_progress(self, batch: MirrorBatch, topic: str, progress: bytes) -> None:
        self._write(batch, topic, progress)

    def _write(self, batch: MirrorBatch, topic: str | None, progress: bytes) -> None:
        self.fence(batch.topic, batch.producer)
        transactional_id = self._transactional_id(batch.topic, batch.producer)
        producer = self._producers.pop(transactional_id)  # after an error another producer finds out the outcome
        with _errors(self._location, writing=True):
            producer.begin_transaction()
            try:
                for record in batch.records:
                    _produce(producer, batch.topic, batch.partition, record)
                if topic is not None:
                    producer.produce(topic, progress, PROGRESS_KEY, 0)
                producer.commit_transaction(REQUEST_SECONDS)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    with contextlib.suppress(KafkaException):
                        producer.abort_transaction(REQUEST_SECONDS)
                raise
        self._producers[transactional_id] = producer

    def close(self) -> None:
        self._producers.clear()
        self._reader.close()


def _produce(producer: Producer, topic: str, partition: int, record: MirrorRecord) -> None:
    headers: Any = list(record.headers)
    moment: Any = {} if record.timestamp is None else {"timestamp": record.timestamp // 1000}
    value = None if record.tombstone else record.value
    producer.produce(topic, value, record.key, partition, headers=headers, **moment)
