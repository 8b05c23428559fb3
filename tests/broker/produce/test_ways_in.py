"""Every way by which a record becomes part of a topic: it has to fit the schema that the topic has at that moment, also
if it was accepted before. What does not fit is refused, or becomes a dead letter, and is never lost."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.log.harness import columns_of

from penstock.broker.errors import LimitReached, RecordRejected
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE as HERE
from penstock.broker.names import MAX_NAME_CHARACTERS
from penstock.broker.publications import publishing as steps
from penstock.broker.publications.publishing import Publishing
from penstock.broker.publications.staging import StagedWriter, new_ref
from penstock.broker.queries.queries import QueryPolicy
from penstock.broker.schemas.schema import Compatibility, SchemaKind
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import GroupState, PartitionId, Producer, Records

SOURCE = Path(__file__).parents[3] / "src" / "penstock"

GOOD, BAD = b'{"id": 1}', b'{"no": 1}'
SCHEMA = b'{"type": "object", "required": ["id"]}'
LARGE = Limits(publication_entry_bytes=1)  # every publication takes several steps

Way = Callable[[BrokerFixture, bytes], Generator[None]]
"""Does what can be done with the value before the topic `t` has a schema, yields, and brings it into the topic."""


def append(fixture: BrokerFixture, value: bytes) -> Generator[None]:
    yield
    fixture.broker.produce.append(ME, HERE, "t", 0, [value])


def append_under_an_expected_offset(fixture: BrokerFixture, value: bytes) -> Generator[None]:
    """As AppendEvents of Kimberlite."""
    yield
    fixture.broker.produce.append(ME, HERE, "t", 0, [value], expected_offset=0, allow_dead_letters=False)


def append_of_a_known_producer(fixture: BrokerFixture, value: bytes) -> Generator[None]:
    fixture.broker.produce.append(ME, HERE, "other", 0, [b"first"], producer=Producer(b"p", 0, 0))
    yield
    fixture.broker.produce.append(ME, HERE, "t", 0, [value], producer=Producer(b"p", 0, 1))


def append_partitioned(fixture: BrokerFixture, value: bytes) -> Generator[None]:
    yield
    fixture.broker.produce.append_partitioned(ME, HERE, "t", [value], None, [-1])


def transaction(fixture: BrokerFixture, value: bytes) -> Generator[None]:
    number = fixture.broker.transactions.begin(ME, "me", HERE)
    fixture.broker.transactions.add(ME, number, HERE, "t", value)
    yield
    fixture.broker.transactions.commit(ME, number)


def delayed(fixture: BrokerFixture, value: bytes) -> Generator[None]:
    fixture.broker.delays.schedule(ME, HERE, "t", value, b"key", -1, 1_000_000, (("h", b"1"),))
    fixture.commit()
    yield
    fixture.pass_time(2)
    fixture.broker.sweep(fixture.now)


def delayed_across_a_restart(fixture: BrokerFixture, value: bytes) -> Generator[None]:
    fixture.broker.delays.schedule(ME, HERE, "t", value, None, 0, 1_000_000)
    yield
    fixture.commit()
    fixture.restart()
    fixture.pass_time(2)
    fixture.broker.sweep(fixture.now)


def replay_of_what_anybody_wrote(fixture: BrokerFixture, value: bytes) -> Generator[None]:
    fixture.broker.topics.create(ME, HERE, "t.dlq", 1)
    fixture.broker.produce.append(ME, HERE, "t.dlq", 0, [value])
    fixture.commit()
    yield
    work = fixture.broker.dead_letters.replay(ME, HERE, "t", 0)
    work.run()
    work.finish()


def sql_insert(fixture: BrokerFixture, value: bytes) -> Generator[None]:
    fixture.broker.queries.attach_worker(lambda: None)
    statement = fixture.broker.queries.run(ME, HERE, "INSERT")
    statement.start(lambda: None)
    fixture.commit()
    assert fixture.broker.queries.next() is statement
    yield
    fixture.broker.queries.capability.append(statement.number, "t", [value], None, None)


def stage(fixture: BrokerFixture, *chunks: tuple[str, list[bytes]]) -> str:
    permit, _ = fixture.broker.publications.prepare(ME, HERE, "app", 0, [name for name, _ in chunks])
    ids = {topic.name: topic.id for topic in permit.topics}
    writer = StagedWriter(fixture.disk, new_ref(permit.key, 0, fixture.now, secrets.token_bytes), sync=True)
    for name, values in chunks:
        writer.add(ids[name], name, 0, columns_of(Records(PartitionId(0), values)))
    return writer.finish().ref


def outcome(fixture: BrokerFixture, publishing: Publishing) -> None:
    fixture.commit()
    assert publishing.outcome.state is not GroupState.OPEN
    if publishing.outcome.error is not None:
        raise publishing.outcome.error


def publication_staged_before(fixture: BrokerFixture, value: bytes) -> Generator[None]:
    ref = stage(fixture, ("t", [value]))
    yield
    outcome(fixture, fixture.broker.publications.publish(ME, HERE, "app", 0, [ref]))


def publication_begun_before(fixture: BrokerFixture, value: bytes) -> Generator[None]:
    """Its first step is for another topic, and not committed yet."""
    ref = stage(fixture, ("other", [b"1"]), ("t", [value]))
    publishing = fixture.broker.publications.publish(ME, HERE, "app", 0, [ref])
    yield
    outcome(fixture, publishing)


def publication_finished_after_a_restart(fixture: BrokerFixture, value: bytes) -> Generator[None]:
    ref = stage(fixture, ("other", [b"1"]), ("t", [value]))
    fixture.broker.publications.publish(ME, HERE, "app", 0, [ref])
    yield
    fixture.committer.run()
    fixture.restart()
    fixture.pass_time(10)
    fixture.broker.sweep(fixture.now)


WAYS: list[tuple[Way, dict[str, Any]]] = [
    (append, {}),
    (append_under_an_expected_offset, {}),
    (append_of_a_known_producer, {}),
    (append_partitioned, {}),
    (transaction, {}),
    (delayed, {}),
    (delayed_across_a_restart, {}),
    (replay_of_what_anybody_wrote, {}),
    (sql_insert, {"queries": QueryPolicy(enabled=True)}),
    (publication_staged_before, {}),
    (publication_staged_before, {"limits": LARGE}),
    (publication_begun_before, {"limits": LARGE}),
    (publication_finished_after_a_restart, {"limits": LARGE}),
]
each_way = pytest.mark.parametrize(("way", "options"), WAYS, ids=lambda it: getattr(it, "__name__", "") or str(len(it)))


@pytest.fixture(autouse=True)
def every_chunk_is_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP_BYTES", 1)


def a_broker(name: str = "t", **options: Any) -> BrokerFixture:
    fixture = BrokerFixture(**options)
    fixture.broker.topics.create(ME, HERE, name, 1)
    fixture.broker.topics.create(ME, HERE, "other", 1)
    work = fixture.broker.schemas.register(ME, HERE, "s", SchemaKind.JSON, SCHEMA)
    work.run()
    work.finish()
    fixture.commit()
    return fixture


def stored(fixture: BrokerFixture, topic: str) -> list[bytes]:
    if not fixture.broker.topics.exists(HERE, topic):
        return []
    (bounds,) = fixture.broker.topics.bounds(ME, HERE, [topic])[topic]
    slices = fixture.broker.fetch.plan(ME, HERE, topic, 0, bounds.start, 1 << 30, 1 << 30).run()
    return [value for part in slices for value in part.values()]


@each_way
@pytest.mark.parametrize("rejected", [None, "error", "dead-letter"])
def test_a_record_has_to_fit_the_schema_that_the_topic_has_when_it_gets_there(
    way: Way, options: dict[str, Any], rejected: Any
) -> None:
    fixture = a_broker(**options)
    steps_of_way = way(fixture, BAD)
    next(steps_of_way)
    fixture.broker.topics.change(ME, HERE, "t", TopicSettings(schema="s", rejected=rejected))
    refused = False
    try:
        next(steps_of_way, None)
    except RecordRejected as error:
        refused = True
        assert "id" in str(error)
    fixture.commit()
    assert stored(fixture, "t") == []
    assert refused or stored(fixture, "t.dlq") == [BAD]
    if way is replay_of_what_anybody_wrote:
        assert refused and stored(fixture, "t.dlq") == [BAD]


@each_way
def test_one_that_fits_gets_there(way: Way, options: dict[str, Any]) -> None:
    fixture = a_broker(**options)
    steps_of_way = way(fixture, GOOD)
    next(steps_of_way)
    fixture.broker.topics.change(ME, HERE, "t", TopicSettings(schema="s"))
    next(steps_of_way, None)
    fixture.commit()
    assert stored(fixture, "t") == [GOOD]
    assert stored(fixture, "t.dlq") == []


@each_way
def test_another_version_of_the_schema_counts_as_well(way: Way, options: dict[str, Any]) -> None:
    """A record that fitted the version of its day."""
    fixture = a_broker(**options)
    fixture.broker.topics.change(ME, HERE, "t", TopicSettings(schema="s", rejected="dead-letter"))
    steps_of_way = way(fixture, GOOD)
    next(steps_of_way)
    fixture.broker.schemas.set_mode(ME, HERE, "s", Compatibility.NONE)
    work = fixture.broker.schemas.register(ME, HERE, "s", SchemaKind.JSON, b'{"type": "string"}')
    work.run()
    work.finish()
    refused = False
    try:
        next(steps_of_way, None)
    except RecordRejected:
        refused = True
    fixture.commit()
    assert stored(fixture, "t") == []
    assert refused or stored(fixture, "t.dlq") == [GOOD]


def test_what_a_producer_repeats_is_what_it_was() -> None:
    """Its record is in the topic since before: a refusal now would be untrue."""
    fixture = a_broker()
    producer = Producer(b"p", 0, 0)
    first = fixture.broker.produce.append(ME, HERE, "t", 0, [BAD], producer=producer)
    fixture.commit()
    fixture.broker.topics.change(ME, HERE, "t", TopicSettings(schema="s"))
    again = fixture.broker.produce.append(ME, HERE, "t", 0, [BAD], producer=producer)
    assert again.repeated and again.base_offsets == first.base_offsets
    fixture.commit()
    assert stored(fixture, "t") == [BAD]


# -- what was accepted, and can be neither refused nor a dead letter


@pytest.mark.parametrize("rejected", ["error", "dead-letter"])
def test_a_delayed_record_that_cannot_be_a_dead_letter_waits_on_and_keeps_nobody_waiting(
    rejected: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name = "t" * MAX_NAME_CHARACTERS  # no name for its dead letters
    fixture = a_broker(name)
    for topic, value in ((name, BAD), (name, GOOD), ("other", BAD)):
        fixture.broker.delays.schedule(ME, HERE, topic, value, None, 0, 1_000_000)
    fixture.broker.topics.change(ME, HERE, name, TopicSettings(schema="s", rejected=rejected))
    fixture.commit()
    for _ in range(3):
        fixture.pass_time(2)
        fixture.broker.sweep(fixture.now)
        fixture.commit()
    assert (stored(fixture, name), stored(fixture, "other")) == ([GOOD], [BAD])
    assert len(fixture.broker.state_log.state.delayed) == 1
    assert "wait on" in caplog.text
    fixture.broker.topics.change(ME, HERE, name, TopicSettings())
    fixture.pass_time(61)
    for _ in range(2):
        fixture.broker.sweep(fixture.now)
        fixture.commit()
    assert stored(fixture, name) == [GOOD, BAD]


def test_nor_does_one_whose_dead_letters_find_no_room() -> None:
    fixture = a_broker(limits=Limits(topics=2, tenant_share=1.0))
    for topic, value in (("t", BAD), ("other", BAD)):
        fixture.broker.delays.schedule(ME, HERE, topic, value, None, 0, 1_000_000)
    fixture.broker.topics.change(ME, HERE, "t", TopicSettings(schema="s"))
    fixture.commit()
    fixture.pass_time(2)
    fixture.broker.sweep(fixture.now)
    fixture.commit()
    assert (stored(fixture, "t"), stored(fixture, "other")) == ([], [BAD])
    with pytest.raises(LimitReached):
        fixture.broker.topics.create(ME, HERE, "t.dlq", 1)
    fixture.broker.topics.delete(ME, HERE, "other")
    fixture.pass_time(61)
    for _ in range(2):
        fixture.broker.sweep(fixture.now)
        fixture.commit()
    assert (stored(fixture, "t"), stored(fixture, "t.dlq")) == ([], [BAD])


# -- no other way

WRITERS = {
    "broker/produce/validation.py": "after the check",
    "broker/produce/produce_service.py": "to a topic without a schema, or none",
    "broker/produce/delays.py": "to the partition of those that wait, which is no topic's",
    "broker/publications/publishing.py": "to a topic without a schema, or after the check",
    "broker/queues/dead_letters.py": "after the check",
    "broker/queues/exhausted.py": "to a topic of dead letters, which has no schema",
    "broker/security/audit.py": "to the broker's own topic",
}
"""The modules that make what the log takes as records, and why that is right."""


def test_no_other_module_writes_records() -> None:
    made = {
        str(path.relative_to(SOURCE))
        for package in ("broker", "doors", "workers", "sql", "admin", "server", "transport")
        for path in (SOURCE / package).rglob("*.py")
        if re.search(r"\b(Records|Prepared)\(", path.read_text())
    }
    assert made == set(WRITERS), "a new way into a topic: it needs a row in `WAYS`"


@pytest.mark.parametrize("name", ["t.dlq", "a/b.dlq"])
def test_dead_letters_have_no_schema(name: str) -> None:
    fixture = a_broker()
    with pytest.raises(Exception, match="cannot have a schema"):
        fixture.broker.topics.create(ME, HERE, name, 1, TopicSettings(schema="s"))
    fixture.broker.topics.create(ME, HERE, name, 1)
    with pytest.raises(Exception, match="cannot have a schema"):
        fixture.broker.topics.change(ME, HERE, name, TopicSettings(schema="s"))
    fixture.broker.topics.change(ME, HERE, name, TopicSettings(retention_seconds=60))
