"""`penstock mirror` from and to a real cluster: transactions that are aborted, kills, and offsets by time."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # exported, without saying so
from tests.kafka.kraft import Cluster
from tests.launcher import COMMAND, WITHOUT_SETTINGS, BrokerProcess, penstock

import penstock as api

pytestmark = pytest.mark.process

THEN = 1_700_000_000_000  # ms


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("mirror") / "data", "--durability", "written") as running:
        yield running.ready()


def mirror(*arguments: str) -> str:
    done = penstock("mirror", *arguments)
    assert done.returncode == 0, done
    return done.stdout


def committed(cluster: Cluster, topic: str) -> list[bytes]:
    """The values that a consumer of committed records sees in partition 0."""
    options = {"bootstrap.servers": cluster.servers, "group.id": "test", "enable.partition.eof": True}
    consumer = Consumer({**options, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append(message.value() or b"")
    consumer.close()
    return found


def create(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(60)


def test_aborted_records_are_not_mirrored(cluster: Cluster, broker: BrokerProcess) -> None:
    create(cluster, "mixed")
    producer = Producer({"bootstrap.servers": cluster.servers, "transactional.id": "test"})
    producer.init_transactions(60)
    for number in range(10):
        producer.begin_transaction()
        producer.produce("mixed", b"%d" % number, partition=0)
        producer.flush(60)
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(60)
    kept = [b"%d" % number for number in range(10) if number % 3 != 1]
    source, target = f"kafka://{cluster.servers}/mixed", f"penstock://{broker.address('rustlog')}"
    assert f"mixed → mixed: {len(kept)} record(s)" in mirror(source, target)
    assert "mixed → mixed: 0 record(s)" in mirror(source, target)
    with api.connect(broker.address("rustlog")) as db, db.consume("mixed", follow=False) as consumer:
        assert [record.value for record in consumer] == kept


def test_a_new_mirror_begins_at_a_time(cluster: Cluster, broker: BrokerProcess) -> None:
    create(cluster, "dated")
    producer = Producer({"bootstrap.servers": cluster.servers})
    for number in range(10):
        producer.produce("dated", b"%d" % number, partition=0, timestamp=THEN + number * 1000)
        producer.flush(60)
    urls = (f"kafka://{cluster.servers}", f"penstock://{broker.address('rustlog')}")
    for seconds, count in ((5, 5), (-1, 10), (10, 0)):
        moment = f"@{THEN // 1000 + seconds}"
        assert f": {count} record(s)" in mirror(*urls, "-t", f"dated=dated{seconds}", "--from", moment)


def test_a_mirror_to_kafka_that_is_killed_writes_every_record_once(
    cluster: Cluster, broker: BrokerProcess, tmp_path: Path
) -> None:
    urls = (f"penstock://{broker.address('rustlog')}/events", f"kafka://{cluster.servers}/events-copy")
    produced = 0
    with api.connect(broker.address("rustlog")) as db, open(tmp_path / "told", "w") as told:
        db.admin.topics.create("events")
        for part in range(4):
            db.produce_many("events", [b"%d" % each for each in range(produced, produced + 20_000)])
            produced += 20_000
            environment = WITHOUT_SETTINGS | {"HOME": os.fspath(tmp_path)}
            command = [*COMMAND, "mirror", *urls, "--follow"]
            with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=told) as process:
                time.sleep(1.5 + part * 0.37)  # anywhere: in a transaction, or between two
                process.kill()
    mirror(*urls)
    assert "Traceback" not in (tmp_path / "told").read_text()
    assert committed(cluster, "events-copy") == [b"%d" % each for each in range(produced)]


def test_the_later_of_two_mirrors_to_kafka_fences_the_earlier_one(cluster: Cluster, broker: BrokerProcess) -> None:
    urls = (f"penstock://{broker.address('rustlog')}/fenced", f"kafka://{cluster.servers}/fenced-copy")
    with api.connect(broker.address("rustlog")) as db:
        db.admin.topics.create("fenced")
        db.produce_many("fenced", [b"%d" % each for each in range(100)])
        command = [*COMMAND, "mirror", *urls, "--follow"]
        with subprocess.Popen(command, env=WITHOUT_SETTINGS, stderr=subprocess.PIPE, text=True) as first:
            give_up = time.monotonic() + 60
            while "fenced-copy" not in _topics(cluster) or len(committed(cluster, "fenced-copy")) < 100:
                assert time.monotonic() < give_up
                time.sleep(0.2)
            assert ": 0 record(s)" in mirror(*urls)  # takes over, and ends
            db.produce("fenced", b"100")
            _, told = first.communicate(timeout=60)
        assert first.returncode == 1 and "another mirror of this topic has taken over" in told
        mirror(*urls)
    assert committed(cluster, "fenced-copy") == [b"%d" % each for each in range(101)]


def _topics(cluster: Cluster) -> set[str]:
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    return set(admin.list_topics(timeout=30).topics)


def test_records_that_expired_before_they_were_mirrored_are_reported(cluster: Cluster, broker: BrokerProcess) -> None:
    create(cluster, "short")
    producer = Producer({"bootstrap.servers": cluster.servers})

    def produce(numbers: range) -> None:
        for number in numbers:
            producer.produce("short", b"%d" % number, partition=0)
        assert producer.flush(60) == 0

    urls = (f"kafka://{cluster.servers}/short", f"penstock://{broker.address('rustlog')}")
    produce(range(10))
    assert ": 10 record(s)" in mirror(*urls)
    produce(range(10, 30))
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    (deleted,) = admin.delete_records([TopicPartition("short", 0, 25)]).values()
    deleted.result(60)
    done = penstock("mirror", *urls)
    assert done.returncode == 0 and ": 5 record(s)" in done.stdout
    assert "short/0: the source no longer has offsets 10 to 24" in done.stderr
