"""Kimberlite's streams and the other doors of the real broker: the same events at the same offsets, and the same
refusals. What each kind of request tells of other tenants is in `tests/doors/kimberlite/test_isolation.py`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from tests.e2e.test_blipmq import take
from tests.e2e.test_kimberlite import Peer
from tests.launcher import BrokerProcess
from tests.workers.flight.seeded_flight_broker import OPEN, Maker, made

from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.access import ADMINISTRATOR, Permission
from penstock.broker.security.key import KeyTerms
from penstock.broker.security.user import PERMISSIONS
from penstock.clients.blipmq import BlipMQError
from penstock.clients.blipmq import Client as BlipMqClient
from penstock.clients.flymq import Client as FlyMqClient
from penstock.clients.flymq import Unauthorized
from penstock.clients.rustlog import Client as RustLogClient
from penstock.clients.rustlog import RustLogError
from penstock.flight.client import FlightLog
from penstock.flight.errors import AccessRefused, FlightLogError
from penstock.flight.log import TopicPartition
from penstock.flight.options import BrokerOptions
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.messages import DataClass, ErrorCode
from penstock.wire.kimberlite.values import Value

MAPPED = {"PENSTOCK_KIMBERLITE__TENANTS": "1=default"}  # where protocols without tenants are
PARTITIONS = 3
NUMBERS = itertools.count()
EVENTS = [b"one", b"two", b'{"number": 3}', b"", b"\xff\x00"]


def flight_log(broker: BrokerProcess, key: str | None = None, scope: Scope = DEFAULT_SCOPE) -> FlightLog:
    return FlightLog(BrokerOptions((broker.endpoint("flight"),), scope, api_key=key), retries=1)


def through_flight(broker: BrokerProcess, topic: str, partition: int, count: int) -> list[tuple[int, bytes]]:
    batches = flight_log(broker).read(TopicPartition(topic, partition), 0, count, ["offset", "value"])
    return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]


def put(log: FlightLog, topic: str, *values: bytes) -> None:
    """Publish through Flight."""
    batch, app = pa.record_batch([pa.array(values, pa.binary())], ["value"]), f"app {next(NUMBERS)}"
    log.publish(app, 0, [log.stage(app, 0, "task", topic, iter([batch]), batch.schema).ref])


# -- the same events


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests that only need one; each has streams of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("doors"), *OPEN, **MAPPED) as broker:
        yield broker.ready()


def test_what_is_appended_here_is_there_at_the_same_offsets(broker: BrokerProcess) -> None:
    expected = list(enumerate(EVENTS))
    with (
        Peer(broker.endpoint("kimberlite"), tenant=1) as peer,
        BlipMqClient(*broker.endpoint("blipmq"), key="any") as blipmq,
        FlyMqClient(*broker.endpoint("flymq")) as flymq,
        RustLogClient(*broker.endpoint("rustlog")) as rustlog,
    ):
        number = peer.create("appended")
        queue = blipmq.subscribe("appended")
        assert peer.ask(m.AppendEvents(number, EVENTS[:2], 0)) == m.AppendEventsResponse(0, 2)
        assert peer.ask(m.AppendEvents(number, EVENTS[2:], 2)) == m.AppendEventsResponse(2, 3)
        fetched = rustlog.fetch("appended", 0, 0).records
        assert [(record.offset, record.payload) for record in fetched] == expected
        records = flymq.fetch("appended", 0, 0, 10).records
        assert [(record.offset, record.value) for record in records] == expected
        assert flymq.consume("appended", 2).value == EVENTS[2]
        assert through_flight(broker, "appended", 0, 5) == expected
        assert [message.value for message in take(queue, 5)] == EVENTS
        assert [topic.name for topic in rustlog.list_topics() if topic.name == "appended"]


def test_what_comes_through_other_doors_is_here_at_the_same_offsets(broker: BrokerProcess) -> None:
    with (
        Peer(broker.endpoint("kimberlite"), tenant=1) as peer,
        Peer(broker.endpoint("kimberlite"), tenant=1) as subscriber,
        BlipMqClient(*broker.endpoint("blipmq"), key="any") as blipmq,
        FlyMqClient(*broker.endpoint("flymq")) as flymq,
        RustLogClient(*broker.endpoint("rustlog")) as rustlog,
    ):
        rustlog.create_topic("produced", 1)
        number = peer.create("produced")  # which finds it
        assert isinstance(subscriber.ask(m.Subscribe(number, 0, 100)), m.SubscribeResponse)
        assert rustlog.produce("produced", 0, [b'{"by": "rustlog"}']).base_offset == 0
        assert flymq.produce("produced", b'{"by": "flymq"}', b"key").offset == 1
        blipmq.publish("produced", b'{"by": "blipmq"}')
        blipmq.flush()
        put(flight_log(broker), "produced", b'{"by": "flight"}')
        assert peer.ask(m.AppendEvents(number, [b'{"by": "kimberlite"}'], 4)) == m.AppendEventsResponse(4, 1)
        doors = ["rustlog", "flymq", "blipmq", "flight", "kimberlite"]
        events = [b'{"by": "%s"}' % door.encode() for door in doors]
        assert peer.ask(m.ReadEvents(number, 0, 1000)) == m.ReadEventsResponse(events, None)
        assert pushed(subscriber, 5) == list(enumerate(events))
        found = peer.ask(m.Query('SELECT "offset", by, key FROM produced ORDER BY "offset"', []))
        keys = [None, "key", None, None, None]
        assert found == m.QueryResponse(
            ["offset", "by", "key"], [list(row) for row in zip(range(5), doors, keys, strict=True)]
        )


def pushed(peer: Peer, count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while len(found) < count:
        push = peer.push()
        assert isinstance(push, m.SubscriptionEvents), push
        found += enumerate(push.events, push.start_offset)
    return found


def test_each_partition_of_a_topic_is_a_stream(broker: BrokerProcess) -> None:
    with (
        Peer(broker.endpoint("kimberlite"), tenant=1) as peer,
        BlipMqClient(*broker.endpoint("blipmq"), key="any") as blipmq,
        FlyMqClient(*broker.endpoint("flymq")) as flymq,
        RustLogClient(*broker.endpoint("rustlog")) as rustlog,
    ):
        rustlog.create_topic("wide", PARTITIONS)
        topic = peer.create("wide")
        streams = [topic + (partition << 32) for partition in range(PARTITIONS)]
        for partition, stream in enumerate(streams):
            by_rustlog, by_flymq, by_us = (b"%s %d" % (door, partition) for door in (b"rustlog", b"flymq", b"here"))
            assert rustlog.produce("wide", partition, [by_rustlog]).base_offset == 0
            assert flymq.produce("wide", by_flymq, partition=partition).offset == 1
            assert peer.ask(m.AppendEvents(stream, [by_us], 2)) == m.AppendEventsResponse(2, 1)
            expected = [by_rustlog, by_flymq, by_us]
            assert peer.ask(m.ReadEvents(stream, 0, 1000)) == m.ReadEventsResponse(expected, None)
            assert peer.ask(m.StreamInfo(stream)) == m.StreamInfoResponse(3)
            assert isinstance(peer.ask(m.Subscribe(stream, 1, 2)), m.SubscribeResponse)
            assert pushed(peer, 2) == [(1, by_flymq), (2, by_us)]
            assert through_flight(broker, "wide", partition, 3) == list(enumerate(expected))
            assert [record.value for record in flymq.fetch("wide", partition, 0, 10).records] == expected
        for beyond in (topic + (PARTITIONS << 32), topic + (1 << 63)):
            refused = peer.ask(m.ReadEvents(beyond, 0, 1000))
            assert isinstance(refused, m.ErrorResponse) and refused.code == ErrorCode.STREAM_NOT_FOUND
        blipmq.publish_many("wide", [b"blipmq"] * 6)
        blipmq.flush()
        everything = [peer.ask(m.ReadEvents(stream, 3, 1000)) for stream in streams]
        assert sum(len(some.events) for some in everything if isinstance(some, m.ReadEventsResponse)) == 6
        counted = "SELECT CAST(data AS VARCHAR) LIKE 'blip%' AS b, COUNT(*) AS n FROM wide GROUP BY b ORDER BY b"
        assert peer.ask(m.Query(counted, [])) == m.QueryResponse(["b", "n"], [[False, 9], [True, 6]])


# -- the same refusals


class SeededBroker(NamedTuple):
    broker: BrokerProcess
    keys: dict[str, str]
    streams: dict[str, int]


CLERK, DOCTOR = "clerk", "doctor"
PLAIN, PATIENTS = "plain", "patients"
PASSWORD = "a long password"
BUT_PHI = tuple(set(Permission) - {Permission.ADMIN, Permission.METRICS, Permission.PHI})


def furnish(maker: Maker) -> tuple[dict[str, str], dict[str, int]]:
    streams = {PLAIN: maker.topic(PLAIN), PATIENTS: maker.topic(PATIENTS, data_class="PHI")}
    for name in streams:
        maker.append(name, [b'{"name": "Ada"}'])
    broker, keys = maker.broker, {}
    for who, permissions in ((CLERK, BUT_PHI), (DOCTOR, (*BUT_PHI, Permission.PHI))):
        new, _ = broker.keys.add(ADMINISTRATOR, KeyTerms(who, "default", permissions))
        keys[who] = new.secret
        known = [name for name in permissions if name in PERMISSIONS]
        broker.users.set_role(ADMINISTRATOR, "default", f"role of {who}".replace(" ", "-"), known, "")
        work = broker.users.create(ADMINISTRATOR, "default", who, PASSWORD, [f"role-of-{who}"])
        work.run()
        work.finish()
    maker.commit()
    return keys, streams


@pytest.fixture(scope="module")
def seeded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeededBroker]:
    path = tmp_path_factory.mktemp("phi")
    with made(path) as maker:
        keys, streams = furnish(maker)
    grants = json.dumps([{"principal": "anonymous", "permissions": BUT_PHI}])
    settings = {"PENSTOCK_SECURITY__MODE": "on", "PENSTOCK_SECURITY__GRANTS": grants}
    with BrokerProcess(path, *OPEN, **MAPPED, **settings) as broker:
        yield SeededBroker(broker.ready(), keys, streams)


Use = Callable[[SeededBroker, str, str], Any]
"""By whom, and of which topic. Raises if it is refused."""


def rustlog(dialect: str, use: Callable[[RustLogClient, str], Any]) -> Use:
    def run(seeded_broker: SeededBroker, _who: str, topic: str) -> Any:
        with RustLogClient(*seeded_broker.broker.endpoint("rustlog"), dialect=dialect) as client:
            return use(client, topic)

    return run


def blipmq(use: Callable[[BlipMqClient, str], Any]) -> Use:
    def run(seeded_broker: SeededBroker, who: str, topic: str) -> None:
        with BlipMqClient(*seeded_broker.broker.endpoint("blipmq"), key=seeded_broker.keys[who]) as client:
            use(client, topic)
            client.flush()
            if client.refusals():
                raise PermissionError

    return run


def flymq(use: Callable[[FlyMqClient, str], Any]) -> Use:
    def run(seeded_broker: SeededBroker, who: str, topic: str) -> Any:
        with FlyMqClient(*seeded_broker.broker.endpoint("flymq"), username=who, password=PASSWORD) as client:
            return use(client, topic)

    return run


def flight(use: Callable[[FlightLog, str], Any]) -> Use:
    return lambda seeded_broker, who, topic: use(flight_log(seeded_broker.broker, seeded_broker.keys[who]), topic)


def kimberlite(request: Callable[[int, str], m.Message], dialect: str = "5b") -> Use:
    def run(seeded_broker: SeededBroker, who: str, topic: str) -> None:
        with Peer(
            seeded_broker.broker.endpoint("kimberlite"), dialect, tenant=1, token=seeded_broker.keys[who]
        ) as peer:
            length = peer.ask(m.StreamInfo(seeded_broker.streams[topic])) if dialect == "5b" else None
            asked = request(seeded_broker.streams[topic], topic)
            if isinstance(asked, m.AppendEvents) and isinstance(length, m.StreamInfoResponse):
                asked = m.AppendEvents(asked.stream_id, asked.events, length.length)
            reply = peer.ask(asked)
            if isinstance(reply, m.ErrorResponse):
                assert reply.code == ErrorCode.AUTHENTICATION_FAILED, reply
                assert b"Ada" not in repr(reply).encode()
                raise PermissionError

    return run


def _in_transaction(client: FlyMqClient, topic: str) -> None:
    with client.transaction() as transaction:
        transaction.produce(topic, b"x")


REFUSALS = (PermissionError, RustLogError, BlipMQError, Unauthorized, AccessRefused)
USES: dict[str, Use] = {
    **{
        f"rustlog {dialect} {name}": rustlog(dialect, use)
        for dialect in ("json", "binary")
        for name, use in (
            ("produce", lambda client, topic: client.produce(topic, 0, [b"x"])),
            ("fetch", lambda client, topic: client.fetch(topic, 0, 0)),
        )
    },
    "blipmq publish": blipmq(lambda client, topic: client.publish(topic, b"x")),
    "blipmq subscribe": blipmq(lambda client, topic: client.subscribe(topic)),
    "flymq produce": flymq(lambda client, topic: client.produce(topic, b"x")),
    # Not due before the broker ends: it would come between the length that another use asks for and its append.
    "flymq produce_delayed": flymq(lambda client, topic: client.produce_delayed(topic, b"x", delay_ms=3_600_000)),
    "flymq transaction": flymq(_in_transaction),
    "flymq consume": flymq(lambda client, topic: client.consume(topic, 0)),
    "flymq consume_zero_copy": flymq(lambda client, topic: client.consume_zero_copy(topic, 0)),
    "flymq fetch": flymq(lambda client, topic: client.fetch(topic, 0, 0)),
    "flymq fetch_binary": flymq(lambda client, topic: client.fetch_binary(topic, 0, 0)),
    "flymq fetch filtered": flymq(lambda client, topic: client.fetch(topic, 0, 0, 10, "Ada")),
    "flymq subscribe": flymq(lambda client, topic: client.subscribe(topic, "group", mode="earliest")),
    "flymq dead letters": flymq(lambda client, topic: client.fetch_dlq(topic)),
    "flight get": flight(lambda log, topic: list(log.read(TopicPartition(topic, 0), 0, 1, ["value"]))),
    "flight put": flight(lambda log, topic: put(log, topic, b"x")),
    "kimberlite append": kimberlite(lambda stream, _: m.AppendEvents(stream, [b"x"], 0)),
    "kimberlite read": kimberlite(lambda stream, _: m.ReadEvents(stream, 0, 100)),
    "kimberlite subscribe": kimberlite(lambda stream, _: m.Subscribe(stream, 0, 10)),
    "kimberlite subscribe group": kimberlite(lambda stream, _: m.Subscribe(stream, 0, 10, "group")),
    "kimberlite subscribe v1": kimberlite(lambda stream, _: m.Subscribe(stream, 0, 10), "seed"),
    "kimberlite query": kimberlite(lambda _, topic: m.Query(f"SELECT * FROM {topic}", [])),
    "kimberlite count": kimberlite(lambda _, topic: m.Query(f"SELECT COUNT(*) FROM {topic}", [])),
    "kimberlite join": kimberlite(lambda _, topic: m.Query(f"SELECT a.name FROM plain a, {topic} b", [])),
    "kimberlite break glass": kimberlite(lambda _, topic: m.Query(f"SELECT * FROM {topic}", [], "an emergency")),
    "kimberlite query at": kimberlite(lambda _, topic: m.QueryAt(f"SELECT * FROM {topic}", [], 6)),
    "kimberlite insert": kimberlite(lambda _, topic: m.Query(f"INSERT INTO {topic} (data) VALUES ('{{}}')", [])),
    "kimberlite describe": kimberlite(lambda _, topic: m.DescribeTable(topic)),
}


@pytest.mark.parametrize("use", USES)
def test_health_data_takes_its_permission_at_every_door(seeded_broker: SeededBroker, use: str) -> None:
    USES[use](seeded_broker, CLERK, PLAIN)
    with pytest.raises(REFUSALS):
        USES[use](seeded_broker, CLERK, PATIENTS)
    if not use.startswith("rustlog"):  # which knows nobody
        USES[use](seeded_broker, DOCTOR, PATIENTS)


def test_who_may_not_read_health_data_cannot_make_it_or_change_what_it_is(seeded_broker: SeededBroker) -> None:
    with Peer(seeded_broker.broker.endpoint("kimberlite"), tenant=1, token=seeded_broker.keys[CLERK]) as clerk:
        for request in (
            m.CreateStream("more_patients", DataClass.PHI, m.Everywhere()),
            m.CreateStream(PATIENTS, DataClass.PHI, m.Everywhere()),
        ):
            refused = clerk.ask(request)
            assert isinstance(refused, m.ErrorResponse) and refused.code == ErrorCode.AUTHENTICATION_FAILED
        listed = clerk.ask(m.ListTables())
        assert isinstance(listed, m.ListTablesResponse)
        assert PATIENTS not in [table.name for table in listed.tables]


# -- tenants


def test_two_tenants_at_the_same_time_never_see_each_others_table(tmp_path: Path) -> None:
    with made(tmp_path) as maker:
        tokens = {}
        for tenant in (1, 2):
            new, _ = maker.broker.keys.add(ADMINISTRATOR, KeyTerms("admin", str(tenant), (), roles=("Admin",)))
            tokens[tenant] = new.secret
        maker.commit()
    with BrokerProcess(tmp_path, *OPEN, PENSTOCK_SECURITY__MODE="on") as broker:
        endpoint = broker.ready().endpoint("kimberlite")

        def work(tenant: int) -> None:
            with Peer(endpoint, tenant=tenant, token=tokens[tenant]) as peer:
                made_one = peer.ask(m.Query("CREATE TABLE accounts (id BIGINT PRIMARY KEY, owner BIGINT)", []))
                assert isinstance(made_one, m.QueryResponse), made_one
                for turn in range(15):
                    inserted = peer.ask(m.Query("INSERT INTO accounts VALUES ($1, $2)", [turn, tenant]))
                    assert isinstance(inserted, m.QueryResponse), inserted
                    ((_, position),) = inserted.rows
                    sql = "SELECT COUNT(*) AS n, MIN(owner) AS least, MAX(owner) AS most FROM accounts"
                    expected: list[list[Value]] = [[turn + 1, tenant, tenant]]
                    assert peer.ask(m.Query(sql, [])) == m.QueryResponse(["n", "least", "most"], expected)
                    assert isinstance(position, int)
                    at = peer.ask(m.QueryAt(sql, [], position))
                    assert at == m.QueryAtResponse(["n", "least", "most"], expected)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, (1, 2)))
        with Peer(endpoint, tenant=2, token=tokens[2]) as owner:
            number = owner.create("secret")
            owner.ask(m.AppendEvents(number, [b"of tenant 2"], 0))
        place = TopicPartition("secret", 0)
        for key, scope in ((tokens[1], Scope("2", "default")), (tokens[1], Scope("1", "default"))):
            with pytest.raises(FlightLogError):
                list(flight_log(broker, key, scope).read(place, 0, 1, ["value"]))
        (batch,) = flight_log(broker, tokens[2], Scope("2", "default")).read(place, 0, 1, ["value"])
        assert batch.column("value").to_pylist() == [b"of tenant 2"]
        with BlipMqClient(*broker.endpoint("blipmq"), key=tokens[1]) as stranger, pytest.raises(BlipMQError):
            stranger.subscribe("secret")  # which has no tenants: it would be one of the default tenant
