"""`penstock serve --storage` on three real Kafka nodes: brokers and nodes that are killed, stopped and cut off."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kafka.brokers import TOPIC, Broker, Writer, new_url
from tests.kafka.kraft import Cluster
from tests.launcher import BrokerProcess

from penstock.clients import rustlog
from penstock.clients.rustlog.errors import WriteDoubtful

pytestmark = pytest.mark.process

Start = Callable[..., Broker]
PATIENT = 120  # s that something may take on a busy machine


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Iterator[Start]:
    """Brokers of one journal."""
    brokers: list[Broker] = []
    url = new_url(cluster, delivery_seconds="3")

    def make(name: str) -> Broker:
        brokers.append(Broker(tmp_path, name, url).start())
        return brokers[-1]

    yield make
    for broker in brokers:
        broker.kill()
    cluster.mend()


def health(broker: Broker) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.ports['http']}/health", timeout=10) as reply:
            return reply.status, json.load(reply)["reason"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["reason"]


def test_a_killed_broker_and_an_empty_disk(start: Start) -> None:
    first = start("a").ready()
    first.write(*map(str, range(100)))
    first.kill()
    first.start().ready()  # at once: it knows that it was the owner itself
    assert first.values() == list(map(str, range(100)))
    first.write("more")
    first.kill()
    empty = start("b").ready()
    assert empty.values() == [*map(str, range(100)), "more"]


def test_a_standby_takes_over(start: Start) -> None:
    owner = start("a").ready()
    owner.write("first")
    standby = start("b")
    standby.says("standby: the journal belongs to process")
    standby.write("through the standby")
    assert standby.values() == owner.values() == ["first", "through the standby"]
    assert health(standby) == (200, "")  # the owner's
    with Writer(owner, standby) as writer:
        writer.more(200)
        owner.kill()
        writer.more(200)
        owner.start().says("standby")
        with Writer(owner, topic="other") as only_here:  # its connections wait for the takeover
            only_here.more(20)
            standby.kill()
            only_here.more(20)
        writer.more(200)
    writer.check(owner.values()[2:])
    print(f"longest time without an acknowledgement: {writer.longest_gap:.1f} s")


def test_a_zombie_steps_down(start: Start) -> None:
    """The owner stops for longer than a standby waits, and wakes up in the middle of its work."""
    owner = start("a").ready()
    owner.write("first")
    standby = start("b")
    standby.says("standby")
    with Writer(owner, standby) as writer:
        writer.more(100)
        owner.signal(signal.SIGSTOP)
        standby.ready()
        writer.more(100)
        owner.signal(signal.SIGCONT)
        owner.says("stepping down: another broker owns the journal now")
        owner.says("standby")
        writer.more(100)
    writer.check(standby.values()[1:])


def test_kafka_loses_the_leader_of_the_journal(start: Start, cluster: Cluster) -> None:
    broker = start("a").ready()
    broker.write("first")
    with Writer(broker) as writer:
        writer.more(50)
        cluster.leader(f"{broker.journal}.journal").kill()
        writer.more(50, PATIENT)  # Kafka elects another one, which the broker has to find
    writer.check(broker.values()[1:])


def test_kafka_goes_away_and_comes_back(start: Start, cluster: Cluster) -> None:
    broker = start("a").ready()
    broker.write("first")
    for node in cluster.nodes[:2]:  # one of three is not enough
        node.kill()
    with rustlog.Client("127.0.0.1", broker.port, timeout=PATIENT) as client:
        with pytest.raises(WriteDoubtful):
            client.produce(TOPIC, 0, [b"nobody knows"])
        with pytest.raises(rustlog.ServerError, match="not available now: nothing was stored"):
            client.produce(TOPIC, 0, [b"no"])
    assert broker.values() == ["first"]  # reads go on
    status, reason = health(broker)
    assert status == 503
    assert "Kafka does not answer" in reason
    cluster.mend()
    broker.says("the journal on Kafka goes on")
    assert health(broker) == (200, "")
    broker.write("last")
    assert [value for value in broker.values() if value != "nobody knows"] == ["first", "last"]


def test_a_directory_is_the_cache_of_one_journal(cluster: Cluster, start: Start, tmp_path: Path) -> None:
    owner = start("a").ready()
    owner.write("first")
    owner.kill()
    for flags, text in (
        ((), "start with --storage"),
        (("--storage", new_url(cluster)), "is the cache of cell 0 of"),
    ):
        with BrokerProcess(tmp_path / "a", *flags, PENSTOCK_TABLES__URL=str(tmp_path / "tables")) as broker:
            code, _, errors = broker.finish(60)
        assert code == 1
        assert text in errors


def test_a_topic_that_could_lose_something_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    url = new_url(cluster, min_insync="1")
    with BrokerProcess(tmp_path / "a", "--storage", url, PENSTOCK_TABLES__URL=str(tmp_path / "tables")) as broker:
        code, _, errors = broker.finish(60)
    assert code == 1
    assert "1 are enough for an acknowledgement" in errors
    with BrokerProcess(tmp_path / "a", "--storage", url) as broker:
        assert "set tables.url" in broker.finish(60)[2]
