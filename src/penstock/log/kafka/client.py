"""A journal on Kafka, by confluent-kafka (librdkafka)."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from penstock.log.errors import LogUnavailable
from penstock.log.kafka.fencing import Stamp
from penstock.log.kafka.journal import JournalRecord, JournalTrimmed, OnStored, from_headers, to_headers

if TYPE_CHECKING:
    from penstock.log.kafka.journal import JournalProducer, JournalReader
    from penstock.log.kafka.snapshot_topic import Item, KeyedTopic

logger = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 10.0
ATTEMPT_SECONDS: Final = 2.0  # after which a request is retried
PAUSE_SECONDS: Final = 0.1
READ_RECORDS: Final = 500  # at a time
_TRIMMED: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
Options = Mapping[str, str | int | float | bool]


class KafkaJournal:
    """See `penstock.log.kafka.journal.Journal`: one partition of a topic."""

    def __init__(self, options: Options, topic: str, cell: int, *, message_bytes: int, delivery_seconds: float) -> None:
        """`options` are librdkafka's, with `bootstrap.servers`."""
        self._options: dict[str, Any] = {
            **options,
            # Reconnect soon: a start of Kafka, or of one of its nodes, takes seconds.
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            # Kafka considers a killed node the leader for some seconds; refresh metadata until there is a new leader,
            # and not only when the connection breaks.
            "topic.metadata.refresh.interval.ms": 1000,
            "socket.connection.setup.timeout.ms": 3000,
            "log.connection.close": False,
            "allow.auto.create.topics": False,
            "logger": logger,
        }
        self._topic = topic
        self._cell = cell
        self._message_bytes = message_bytes
        self._delivery_ms = int(delivery_seconds * 1000)
        self._looker: Consumer | None = None  # for bounds
        self._idle: Consumer | None = None  # of a closed reader, with open connections
        self._spare: Producer | None = None
        self._shared: Producer | None = None

    def bounds(self) -> tuple[int, int]:
        if self._looker is None:
            self._looker = self._consumer()
        give_up = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                # librdkafka keeps asking the leader that it knows, even if that node is down: so find the leader first,
                # and retry soon.
                self._looker.list_topics(self._topic, timeout=ATTEMPT_SECONDS)
                place = TopicPartition(self._topic, self._cell)
                found = self._looker.get_watermark_offsets(place, timeout=ATTEMPT_SECONDS)
            except KafkaException as error:
                reason = error.args[0].str()
            else:
                if found is not None:
                    return int(found[0]), int(found[1])
                reason = f"no answer within {ATTEMPT_SECONDS:g} s"
            if time.monotonic() > give_up:
                raise LogUnavailable(f"Kafka does not tell where {self._topic} ends: {reason}")
            time.sleep(PAUSE_SECONDS)

    def reader(self, offset: int) -> JournalReader:
        consumer, self._idle = self._idle or self._consumer(), None
        return _Reader(self, consumer, TopicPartition(self._topic, self._cell, offset))

    def read_no_more(self, consumer: Consumer) -> None:
        if self._idle is None:
            consumer.unassign()
            self._idle = consumer
        else:
            consumer.close()

    def prepare(self) -> None:
        """Create the next producer now: getting its id takes half a second."""
        if self._spare is None:
            self._spare = self.new_producer()

    def producer(self) -> JournalProducer:
        producer, self._spare = self._spare or self.new_producer(), None
        return _Producer(producer, self._topic, self._cell)

    def new_producer(self, **more: Any) -> Producer:
        options = {
            **self._options,
            "enable.idempotence": True,  # with it: acks=all, order kept over retries
            "delivery.timeout.ms": self._delivery_ms,
            "request.timeout.ms": min(30_000, self._delivery_ms),
            "linger.ms": 0,
            "message.max.bytes": self._message_bytes,
            "queue.buffering.max.kbytes": 1 << 20,
            **more,
        }
        try:
            return Producer(options)
        except KafkaException as error:
            raise LogUnavailable(f"no producer: {error.args[0].str()}") from None

    def trim(self, offset: int) -> None:
        place = TopicPartition(self._topic, self._cell, offset)
        try:
            admin = AdminClient(self._options)
            admin.delete_records([place], request_timeout=REQUEST_SECONDS)[place].result(REQUEST_SECONDS)
        except KafkaException as error:
            raise LogUnavailable(f"Kafka does not trim {self._topic}: {error.args[0].str()}") from None
        except TimeoutError:
            raise LogUnavailable(f"Kafka does not trim {self._topic} within {REQUEST_SECONDS:g} s") from None

    def snapshots(self) -> KeyedTopic:
        return KafkaKeyedTopic(self, snapshots_topic(self._topic), self._cell)

    def _consumer(self) -> Consumer:
        return self.new_consumer()

    def new_consumer(self, **more: Any) -> Consumer:
        options = {
            **self._options,
            "group.id": "penstock",  # required, but it joins no group: its partition is assigned manually
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            "fetch.message.max.bytes": 8 << 20,
            "fetch.max.bytes": max(64 << 20, self._message_bytes),
            "receive.message.max.bytes": max(64 << 20, self._message_bytes) + (1 << 20),
            "queued.max.messages.kbytes": 64 << 10,
            **more,
        }
        try:
            return Consumer(options)
        except KafkaException as error:
            raise LogUnavailable(f"no consumer: {error.args[0].str()}") from None

    def shared_producer(self) -> Producer:
        """The producer for records outside of the journal."""
        if self._shared is None:
            self._shared = self.new_producer()
        return self._shared

    def close(self) -> None:
        for consumer in filter(None, (self._looker, self._idle)):
            consumer.close()
        self._looker = self._idle = self._spare = self._shared = None


class _Producer:
    def __init__(self, producer: Producer, topic: str, cell: int) -> None:
        self._producer = producer
        self._topic = topic
        self._cell = cell
        self._key = b"%d" % cell
        self._closed = False

    def send(self, stamp: Stamp, value: bytes, on_stored: OnStored) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if self._closed:
                return
            if error is not None:
                on_stored(-1, error.str())
            else:
                offset = message.offset()
                on_stored(-1 if offset is None else offset, "")

        try:
            self._producer.produce(
                self._topic, value, self._key, self._cell, on_delivery=delivered, headers=to_headers(stamp)
            )
        except (BufferError, KafkaException) as error:
            reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            raise LogUnavailable(f"Kafka's client takes no more: {reason}") from None

    def poll(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def close(self) -> None:
        """The client itself is freed when all delivery reports have arrived."""
        self._closed = True
        with contextlib.suppress(KafkaException):
            self._producer.purge()


class _Reader:
    def __init__(self, journal: KafkaJournal, consumer: Consumer, place: TopicPartition) -> None:
        self._journal = journal
        self._consumer = consumer
        consumer.assign([place])

    def read(self, seconds: float) -> list[JournalRecord]:
        first = self._consumer.poll(seconds)
        if first is None:
            return []
        records = []
        for message in (first, *self._consumer.consume(READ_RECORDS, 0)):  # those that have already arrived
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF or (error.retriable() and not error.fatal()):
                    continue
                if error.code() in _TRIMMED:
                    raise JournalTrimmed(f"the journal on Kafka begins behind the place to read on from: {error.str()}")
                raise LogUnavailable(f"the journal on Kafka cannot be read: {error.str()}")
            headers: Any = message.headers()
            records.append(JournalRecord(message.offset() or 0, from_headers(headers), _bytes(message.value())))
        return records

    def close(self) -> None:
        self._journal.read_no_more(self._consumer)


def snapshots_topic(journal_topic: str) -> str:
    """The name of the compacted topic that belongs to a journal."""
    return f"{journal_topic.removesuffix('.journal')}.snapshots"


class KafkaKeyedTopic:
    """See `penstock.log.kafka.snapshot_topic.KeyedTopic`: one partition of a compacted topic."""

    def __init__(self, journal: KafkaJournal, topic: str, cell: int) -> None:
        self._journal = journal
        self._topic = topic
        self._cell = cell

    def read(self) -> Iterator[Item]:
        consumer = self._journal.new_consumer(**{"enable.partition.eof": True})
        try:
            consumer.assign([TopicPartition(self._topic, self._cell, OFFSET_BEGINNING)])
            give_up = time.monotonic() + REQUEST_SECONDS
            while True:
                message = consumer.poll(0.25)
                if message is None:
                    if time.monotonic() > give_up:
                        raise LogUnavailable(f"Kafka does not give {self._topic} within {REQUEST_SECONDS:g} s")
                    continue
                give_up = time.monotonic() + REQUEST_SECONDS
                error = message.error()
                if error is None:
                    value, key = message.value(), _bytes(message.key()).decode(errors="replace")
                    yield key, None if value is None else _bytes(value)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
                elif not error.retriable() or error.fatal():
                    raise LogUnavailable(f"{self._topic} cannot be read: {error.str()}")
        finally:
            consumer.close()

    def put(self, items: Sequence[Item]) -> None:
        producer = self._journal.shared_producer()
        answers: list[str] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            answers.append("" if error is None else error.str())

        try:
            for key, value in items:
                producer.produce(self._topic, value, key.encode(), self._cell, on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            raise LogUnavailable(f"Kafka's client takes nothing for {self._topic}: {error}") from None
        while len(answers) < len(items):  # each arrives within the delivery timeout
            producer.poll(0.25)
        if failed := list(filter(None, answers)):
            raise LogUnavailable(f"{self._topic} could not be written: {failed[0]}")


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b""
