"""`penstock mirror` from and to Kafka: librdkafka's mock cluster and a broker. What the mock does not know (offsets by
time, aborted transactions, topics made by request) is tested on a real node, by `tests/kafka/test_mirror.py`."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, Message, Producer, TopicPartition
from tests.launcher import COMMAND, WITHOUT_SETTINGS, BrokerProcess, Done, penstock
from tests.log.kafka.mock_cluster import MockCluster

import penstock as api
from penstock.mirror.progress import identity, progress_topic

RECORDS = 1200
THEN = 1_700_000_000_000  # ms


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("mirror") / "data", "--durability", "written") as running:
        yield running.ready()


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockCluster]:
    """A cluster with topic `orders`: two partitions, keys, headers, times, and one tombstone at the end of each."""
    with MockCluster(1) as cluster:
        cluster.create_topic("orders", 2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(RECORDS):
            value = b"%d" % number
            headers: list[tuple[str, str | bytes | None]] = [("n", value)]
            producer.produce("orders", value, b"k" + value, number % 2, timestamp=THEN + number, headers=headers)
        for partition in range(2):
            producer.produce("orders", None, b"gone", partition, timestamp=THEN + RECORDS)
        assert producer.flush(30) == 0
        yield cluster


def mirror(*arguments: str) -> Done:
    done = penstock("mirror", *arguments)
    assert done.returncode == 0, done
    return done


def read_all(kafka: MockCluster, topic: str, partition: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "test", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(message)
    consumer.close()
    return found


def test_from_kafka_with_keys_headers_and_partitions_once_and_resumed(
    kafka: MockCluster, broker: BrokerProcess
) -> None:
    urls = (f"kafka://{kafka.bootstrap}/orders", f"penstock://{broker.address('rustlog')}/copy")
    done = mirror(*urls, "--origin")
    assert f"orders → copy: {RECORDS + 2} record(s)" in done.stdout
    with api.connect(broker.address("rustlog")) as db, db.consume("copy", follow=False) as consumer:
        found = list(consumer)
    for partition in range(2):
        records = [each for each in found if each.partition == partition]
        wanted = [b"%d" % number for number in range(partition, RECORDS, 2)]
        assert [(each.key, each.value) for each in records] == [*((b"k" + n, n) for n in wanted), (b"gone", b"")]
        assert dict(records[7].headers) == {
            "n": wanted[7],
            "mirror-topic": b"orders",
            "mirror-partition": b"%d" % partition,
            "mirror-offset": b"7",
            "mirror-timestamp": b"%d" % ((THEN + int(wanted[7])) * 1000),
        }
    assert "orders → copy: 0 record(s)" in mirror(*urls).stdout


@pytest.mark.parametrize(("place", "count"), [("590", 22), ("latest", 0)])
def test_where_a_new_mirror_of_a_topic_on_kafka_begins(
    kafka: MockCluster, broker: BrokerProcess, place: str, count: int
) -> None:
    urls = (f"kafka://{kafka.bootstrap}", f"penstock://{broker.address('rustlog')}")
    assert f": {count} record(s)" in mirror(*urls, "-t", f"orders=from-{place}", "--from", place).stdout


def test_to_kafka_and_on_to_another_topic_there_with_times_and_tombstones(
    kafka: MockCluster, broker: BrokerProcess
) -> None:
    with api.connect(broker.address("rustlog")) as db:
        db.admin.topics.create("plain")
        values = [b"%d" % number for number in range(RECORDS)]
        db.produce_many("plain", values, keys=values, headers=[{"n": value} for value in values])
        with db.consume("plain", follow=False) as consumer:
            times = [record.timestamp or 0 for record in consumer]
    _create(kafka, "there", "plain", 1)
    urls = (f"penstock://{broker.address('rustlog')}/plain", f"kafka://{kafka.bootstrap}/there")
    done = mirror(*urls, "--name", "here")
    assert f"plain → there: {RECORDS} record(s)" in done.stdout
    assert "may be delivered twice" not in done.stderr and "stamps" not in done.stderr
    found = read_all(kafka, "there", 0)
    assert [(each.key(), each.value(), each.headers()) for each in found] == [(n, n, [("n", n)]) for n in values]
    assert [each.timestamp() for each in found] == [(TIMESTAMP_CREATE_TIME, moment // 1000) for moment in times]
    assert "plain → there: 0 record(s)" in mirror(*urls, "--name", "here").stdout

    _create(kafka, "second", "orders", 2)
    urls = (f"kafka://{kafka.bootstrap}/orders", f"kafka://{kafka.bootstrap}/second")
    assert f": {RECORDS + 2} record(s)" in mirror(*urls, "--name", "here").stdout
    first, second = (read_all(kafka, topic, 1) for topic in ("orders", "second"))
    assert second[-1].value() is None
    assert [_content(each) for each in second] == [_content(each) for each in first]


def _content(message: Message) -> object:
    return message.key(), message.value(), message.headers(), message.timestamp()


def _create(kafka: MockCluster, target: str, source: str, partitions: int) -> None:
    """Topics that the mirror would create itself; the mock cluster does not support that."""
    kafka.create_topic(target, partitions)
    for number in range(partitions):
        kafka.create_topic(progress_topic(target, f"{identity('here', source)}-{number}"), 1)


def test_a_mirror_of_kafka_that_is_killed_goes_on_where_it_was(
    kafka: MockCluster, broker: BrokerProcess, tmp_path: Path
) -> None:
    kafka.create_topic("events", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    urls = (f"kafka://{kafka.bootstrap}/events", f"penstock://{broker.address('rustlog')}")
    command = [*COMMAND, "mirror", *urls, "--follow"]
    produced = 0
    for _ in range(2):
        with (
            open(tmp_path / "told", "a") as told,
            subprocess.Popen(command, env=WITHOUT_SETTINGS, stdout=subprocess.DEVNULL, stderr=told) as process,
        ):
            for number in range(produced, produced + 3000):
                producer.produce("events", b"%d" % number, partition=0)
            assert producer.flush(30) == 0
            produced += 3000
            _until_more(broker.address("rustlog"), "events", produced - 2900)
            process.kill()
    assert "Traceback" not in (tmp_path / "told").read_text()
    mirror(*urls)
    with api.connect(broker.address("rustlog")) as db, db.consume("events", follow=False) as consumer:
        assert [record.value for record in consumer] == [b"%d" % number for number in range(produced)]


def _until_more(address: str, topic: str, count: int) -> None:
    end = time.monotonic() + 60
    with api.connect(address) as db:
        while time.monotonic() < end:
            if db.admin.topics.list(topic):
                with db.consume(topic, follow=False) as consumer:
                    if sum(1 for _ in consumer) >= count:
                        return
            time.sleep(0.05)
    raise AssertionError(f"fewer than {count} records came")
