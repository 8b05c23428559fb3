"""Schemas of a broker: versions, modes, checks of records; across restarts, failed commits and limits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture, committed, later

from penstock.broker.errors import (
    AccessDenied,
    InvalidName,
    LimitReached,
    RecordRejected,
    SchemaIncompatible,
    SchemaInvalid,
    SchemaNotFound,
)
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.schemas import schemas as module
from penstock.broker.schemas.formats import format_of
from penstock.broker.schemas.formats.format import Validator
from penstock.broker.schemas.schema import Compatibility, Schema, SchemaKind
from penstock.broker.security.access import ANONYMOUS, AccessPolicy, Grant, Identity, Permission
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.errors import LogError

JSON, AVRO, PROTOBUF = SchemaKind
OTHER = Scope("acme", "default")
PROTO = b'syntax = "proto3"; message A { string id = 1; }'


def of(*required: str, **types: str) -> bytes:
    """An object with fields of these types."""
    properties = {name: {"type": kind} for name, kind in types.items()}
    return json.dumps({"type": "object", "properties": properties, "required": required}).encode()


FIRST, SECOND = of("a", a="string"), of("a", a="string", b="integer")


def register(
    fixture: BrokerFixture, definition: bytes, name: str = "s", kind: SchemaKind = JSON, scope: Scope = DEFAULT_SCOPE
) -> Schema:
    work = fixture.broker.schemas.register(ANONYMOUS, scope, name, kind, definition)
    work.run()
    schema, _ = work.finish()
    fixture.commit()
    return schema


def versions(fixture: BrokerFixture, name: str | None = None, scope: Scope = DEFAULT_SCOPE) -> list[tuple[str, int]]:
    return [(schema.name, schema.version) for schema in fixture.broker.schemas.list(ANONYMOUS, scope, name)]


def topic(fixture: BrokerFixture, **settings: Any) -> None:
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 1, TopicSettings(**settings))
    fixture.commit()


def check(fixture: BrokerFixture, *values: bytes) -> dict[int, list[str]]:
    found = fixture.broker.topics.describe(ANONYMOUS, DEFAULT_SCOPE, "t").topic
    return fixture.broker.schemas.check(found, values)


# -- versions


def test_versions_are_numbered_and_kept() -> None:
    fixture = BrokerFixture()
    schemas = fixture.broker.schemas
    first = register(fixture, FIRST)
    assert first == Schema("s", 1, JSON, FIRST, fixture.now, id=1)
    assert register(fixture, SECOND).version == 2
    register(fixture, b'"string"', "avro", AVRO)
    register(fixture, FIRST, "s", scope=OTHER)
    for _ in range(2):
        assert schemas.get(ANONYMOUS, DEFAULT_SCOPE, "s").definition == SECOND
        assert schemas.get(ANONYMOUS, DEFAULT_SCOPE, "s", 1) == first
        assert versions(fixture) == [("avro", 1), ("s", 1), ("s", 2)]
        assert versions(fixture, "s") == [("s", 1), ("s", 2)] and versions(fixture, "none") == []
        assert versions(fixture, scope=OTHER) == [("s", 1)]
        fixture.restart()
        schemas = fixture.broker.schemas


def test_the_same_definition_again_is_the_same_version_and_stores_nothing() -> None:
    fixture = BrokerFixture()
    register(fixture, FIRST)
    position = fixture.broker.position
    work = fixture.broker.schemas.register(ANONYMOUS, DEFAULT_SCOPE, "s", JSON, FIRST)
    assert work.ready
    work.run()
    schema, group = work.finish()
    assert schema.version == 1 and group is None
    assert not fixture.committer.run() and fixture.broker.position == position
    register(fixture, SECOND)
    fixture.broker.schemas.set_mode(ANONYMOUS, DEFAULT_SCOPE, "s", Compatibility.NONE)
    assert register(fixture, FIRST).version == 3  # only the latest counts


def test_a_version_that_is_not_committed_yet_is_told_with_its_group() -> None:
    fixture = BrokerFixture()
    groups = []
    for _ in range(2):
        work = fixture.broker.schemas.register(ANONYMOUS, DEFAULT_SCOPE, "s", JSON, FIRST)
        work.run()
        groups.append(work.finish()[1])
    assert groups[0] is not None and groups[0] is groups[1] and not committed(groups[0])


@pytest.mark.parametrize("stage", ["registered", "first", "newest", "all", "again"])
def test_a_number_is_never_used_again(stage: str) -> None:
    fixture = BrokerFixture()
    schemas = fixture.broker.schemas

    def restart_at(this: str) -> None:
        nonlocal schemas
        fixture.commit()
        if this == stage:
            fixture.restart()
            schemas = fixture.broker.schemas

    register(fixture, FIRST)
    register(fixture, SECOND)
    register(fixture, of(a="string", b="integer"))
    restart_at("registered")
    schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s", 1)
    restart_at("first")
    assert versions(fixture) == [("s", 2), ("s", 3)]
    schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s", 3)
    restart_at("newest")
    assert schemas.get(ANONYMOUS, DEFAULT_SCOPE, "s").version == 2
    schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s")
    restart_at("all")
    assert versions(fixture) == []
    with pytest.raises(SchemaNotFound):
        schemas.get(ANONYMOUS, DEFAULT_SCOPE, "s")
    assert register(fixture, b'"int"', kind=AVRO).version == 4  # it need not fit what is gone
    restart_at("again")
    assert versions(fixture) == [("s", 4)]


def test_numbers_survive_a_snapshot_of_an_empty_subject() -> None:
    fixture = BrokerFixture()
    register(fixture, FIRST)
    fixture.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s")
    fixture.commit()
    fixture.broker.close()  # takes a snapshot
    fixture.open()
    assert versions(fixture) == []
    assert register(fixture, FIRST).version == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda it: it.get(ANONYMOUS, DEFAULT_SCOPE, "s", 3),
        lambda it: it.get(ANONYMOUS, DEFAULT_SCOPE, "s", 0),
        lambda it: it.get(ANONYMOUS, DEFAULT_SCOPE, "x"),
        lambda it: it.get(ANONYMOUS, OTHER, "s"),
        lambda it: it.mode(ANONYMOUS, DEFAULT_SCOPE, "x"),
        lambda it: it.set_mode(ANONYMOUS, DEFAULT_SCOPE, "x", Compatibility.NONE),
        lambda it: it.delete(ANONYMOUS, DEFAULT_SCOPE, "x"),
        lambda it: it.delete(ANONYMOUS, DEFAULT_SCOPE, "s", 2),
        lambda it: it.validate(ANONYMOUS, DEFAULT_SCOPE, "x", b"{}"),
        lambda it: it.validate(ANONYMOUS, DEFAULT_SCOPE, "s", b"{}", 2),
    ],
)
def test_what_is_not_there_is_not_found(call: Callable[[Any], object]) -> None:
    fixture = BrokerFixture()
    register(fixture, FIRST)
    with pytest.raises(SchemaNotFound):
        call(fixture.broker.schemas)


# -- compatibility

WIDER, NARROWER = of(a="string"), of("a", "b", a="string", b="integer")


@pytest.mark.parametrize(
    ("mode", "allowed"),
    [
        (Compatibility.BACKWARD, {"wider"}),
        (Compatibility.FORWARD, {"narrower"}),
        (Compatibility.FULL, set()),
        (Compatibility.NONE, {"wider", "narrower", "another kind"}),
    ],
)
def test_a_new_version_fits_the_latest_one_in_the_way_that_the_mode_says(
    mode: Compatibility, allowed: set[str]
) -> None:
    for name, definition, kind in (
        ("wider", WIDER, JSON),
        ("narrower", NARROWER, JSON),
        ("another kind", b'"string"', AVRO),
    ):
        fixture = BrokerFixture()
        register(fixture, FIRST)
        fixture.broker.schemas.set_mode(ANONYMOUS, DEFAULT_SCOPE, "s", mode)
        fixture.commit()
        fixture.restart()
        assert fixture.broker.schemas.mode(ANONYMOUS, DEFAULT_SCOPE, "s") is mode
        if name in allowed:
            assert register(fixture, definition, kind=kind).version == 2
        else:
            with pytest.raises(SchemaIncompatible):
                register(fixture, definition, kind=kind)
            assert versions(fixture) == [("s", 1)]


def test_a_subject_that_was_deleted_begins_anew_with_the_usual_mode() -> None:
    fixture = BrokerFixture()
    register(fixture, FIRST)
    fixture.broker.schemas.set_mode(ANONYMOUS, DEFAULT_SCOPE, "s", Compatibility.NONE)
    fixture.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s")
    register(fixture, FIRST)
    for _ in range(2):
        assert fixture.broker.schemas.mode(ANONYMOUS, DEFAULT_SCOPE, "s") is Compatibility.BACKWARD
        fixture.restart()


def test_the_problem_is_told() -> None:
    fixture = BrokerFixture()
    register(fixture, FIRST)
    with pytest.raises(SchemaIncompatible, match=r"^new required field 'f' not in old schema$"):
        register(fixture, of("a", "f", a="string", f="string"))
    fixture.broker.schemas.set_mode(ANONYMOUS, DEFAULT_SCOPE, "s", Compatibility.FULL)
    with pytest.raises(SchemaIncompatible, match=r"^field 'a' is required in the old schema, optional in the new$"):
        register(fixture, WIDER)


def test_the_decision_is_taken_by_what_is_true_at_the_end() -> None:
    """Two clients at once, both with the next version: the second is compared with the first one's."""
    fixture = BrokerFixture()
    schemas = fixture.broker.schemas
    slow = schemas.register(ANONYMOUS, DEFAULT_SCOPE, "s", JSON, of("a", "c", a="string", c="string"))
    slow.run()
    register(fixture, FIRST)
    with pytest.raises(SchemaIncompatible, match="'c' not in old"):
        slow.finish()
    same, other = (
        schemas.register(ANONYMOUS, DEFAULT_SCOPE, "s", JSON, definition) for definition in (SECOND, of(a="string"))
    )
    same.run()
    other.run()
    register(fixture, SECOND)
    assert same.finish()[0].version == 2  # the same definition
    assert other.finish()[0].version == 3
    loosened = schemas.register(ANONYMOUS, DEFAULT_SCOPE, "s", JSON, of(a="integer"))
    loosened.run()
    schemas.set_mode(ANONYMOUS, DEFAULT_SCOPE, "s", Compatibility.NONE)
    assert loosened.finish()[0].version == 4


def test_registering_goes_off_the_event_loop_two_at_a_time() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    fixture = BrokerFixture(executor=later(calls))
    finished = []
    for number in range(3):
        work = fixture.broker.schemas.register(ANONYMOUS, DEFAULT_SCOPE, f"s{number}", JSON, FIRST)
        assert not work.ready
        work.start(fixture.broker.executor, lambda work=work: finished.append(work.finish()[0].name))  # type: ignore[misc]
    assert len(calls) == module.AT_ONCE and finished == []
    for run, done in calls:  # grows meanwhile
        run()
        done()
    assert finished == ["s0", "s1", "s2"]


# -- what is refused


@pytest.mark.parametrize(
    ("name", "kind", "definition", "error"),
    [
        ("a\\b", JSON, FIRST, InvalidName),
        ("", JSON, FIRST, InvalidName),
        ("s", JSON, b"", SchemaInvalid),
        ("s", JSON, b"{", SchemaInvalid),
        ("s", AVRO, b"{}", SchemaInvalid),
        pytest.param("s", PROTOBUF, b"?", SchemaInvalid, marks=pytest.mark.process),
        ("s", JSON, b" " * (256 << 10) + b"{}", LimitReached),
    ],
)
def test_a_bad_definition_stores_nothing(
    name: str, kind: SchemaKind, definition: bytes, error: type[Exception]
) -> None:
    fixture = BrokerFixture()
    with pytest.raises(error):
        register(fixture, definition, name, kind)
    assert not fixture.committer.run() and versions(fixture) == []


def test_a_bad_scope_is_refused() -> None:
    with pytest.raises(InvalidName):
        register(BrokerFixture(), FIRST, scope=Scope("a b", "default"))


def test_numbers_and_bytes_are_bounded() -> None:
    fixture = BrokerFixture(limits=Limits(schema_versions=2, schema_subjects=2, schema_bytes=2_000, tenant_share=1))
    register(fixture, FIRST)
    register(fixture, SECOND)
    with pytest.raises(LimitReached, match="2 versions"):
        register(fixture, WIDER)
    fixture.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s", 1)
    assert register(fixture, WIDER).version == 3
    register(fixture, FIRST, "other", scope=OTHER)
    with pytest.raises(LimitReached, match="2 schemas"):
        register(fixture, FIRST, "third")
    fixture.broker.schemas.delete(ANONYMOUS, OTHER, "other")
    with pytest.raises(LimitReached, match="2000 bytes"):
        register(fixture, FIRST + b" " * 1_500, "third")
    for _ in range(2):
        register(fixture, FIRST + b" " * 1_000, "third")
        fixture.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "third")  # and its bytes are free again
        fixture.commit()
        fixture.restart()


def test_of_empty_subjects_the_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.schemas.schema.KEPT_EMPTY", 2)
    fixture = BrokerFixture()
    for name in ("a", "b", "c"):
        register(fixture, FIRST, name)
    for name in ("b", "a", "c"):
        fixture.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, name)
    fixture.commit()
    for _ in range(2):
        assert sorted(fixture.broker.state_log.state.schemas[DEFAULT_SCOPE]) == ["a", "c"]
        fixture.restart()
    assert register(fixture, FIRST, "a").version == 2


def test_a_failed_commit_takes_everything_back() -> None:
    fixture = BrokerFixture()
    register(fixture, FIRST)
    topic(fixture, schema="s")
    assert check(fixture, b'{"a": "x", "b": "no integer"}') == {}
    fault = fixture.fill_disk()
    work = fixture.broker.schemas.register(ANONYMOUS, DEFAULT_SCOPE, "s", JSON, SECOND)
    work.run()
    schema, group = work.finish()
    assert schema.version == 2 and check(fixture, b'{"a": "x", "b": "no integer"}') != {}
    fixture.commit()
    assert group is not None and not committed(group)
    assert versions(fixture) == [("s", 1)]
    assert check(fixture, b'{"a": "x", "b": "no integer"}') == {}
    with pytest.raises(LogError):
        fixture.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s")
    fixture.free_disk(fault)
    assert register(fixture, of("a", a="string", b="boolean")).version == 2  # the number was never given
    assert check(fixture, b'{"a": "x", "b": 1}') == {0: ["type mismatch at b: expected boolean, got integer"]}


# -- checking records


def test_a_topic_without_a_schema_takes_anything() -> None:
    fixture = BrokerFixture()
    topic(fixture)
    assert check(fixture, b"", b"\xff") == {}


@pytest.mark.parametrize(
    ("kind", "definition", "good", "bad"),
    [
        (JSON, FIRST, b'{"a": "x"}', b'{"a": 1}'),
        (AVRO, b'"string"', b"\x02x", b"\x02"),
        pytest.param(PROTOBUF, PROTO, b"\x0a\x01x", b"\x0a\x02x", marks=pytest.mark.process),
    ],
)
def test_records_are_checked_against_the_latest_version(
    kind: SchemaKind, definition: bytes, good: bytes, bad: bytes
) -> None:
    fixture = BrokerFixture()
    register(fixture, definition, kind=kind)
    topic(fixture, schema="s")
    for _ in range(2):
        found = check(fixture, good, bad, good, bad)
        assert list(found) == [1, 3] and found[1] and found[1] == found[3]
        fixture.restart()
        fixture.broker.schemas.warm()
    fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [good])
    with pytest.raises(RecordRejected):
        fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [good, bad])


def test_the_latest_version_counts_from_the_moment_it_is_registered_or_deleted() -> None:
    fixture = BrokerFixture()
    register(fixture, FIRST)
    topic(fixture, schema="s")
    message = b'{"a": "x", "b": "text"}'
    assert check(fixture, message) == {}
    register(fixture, SECOND)
    assert check(fixture, message) == {0: ["type mismatch at b: expected integer, got string"]}
    fixture.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s", 2)
    assert check(fixture, message) == {}
    fixture.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s")
    assert check(fixture, message, b"{}") == {index: ["the topic's schema 's' does not exist"] for index in (0, 1)}


def test_the_schema_is_that_of_the_topics_own_tenant() -> None:
    fixture = BrokerFixture()
    register(fixture, FIRST, scope=OTHER)
    topic(fixture, schema="s")
    assert check(fixture, b'{"a": "x"}') == {0: ["the topic's schema 's' does not exist"]}


def test_a_message_can_be_checked_with_any_version() -> None:
    fixture = BrokerFixture()
    register(fixture, FIRST)
    register(fixture, SECOND)
    message = b'{"a": "x", "b": "text"}'
    validate = fixture.broker.schemas.validate
    assert validate(ANONYMOUS, DEFAULT_SCOPE, "s", message) == ["type mismatch at b: expected integer, got string"]
    assert validate(ANONYMOUS, DEFAULT_SCOPE, "s", message, 1) == []


def test_reasons_are_few_and_short() -> None:
    fixture = BrokerFixture(limits=Limits(schema_record_bytes=20_000))
    names = [f"{number:0500}" for number in range(20)]
    register(fixture, of(*names))
    found = fixture.broker.schemas.validate(ANONYMOUS, DEFAULT_SCOPE, "s", b"{}")
    assert len(found) == module.MAX_REASONS
    assert all(len(reason) == module.MAX_REASON for reason in found)
    large = fixture.broker.schemas.validate(ANONYMOUS, DEFAULT_SCOPE, "s", b" " * 20_001)
    assert large == ["the message has 20001 bytes; those with a schema may have 20000"]


def test_validators_are_made_once_and_room_for_them_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    fixture = BrokerFixture()
    topic(fixture, schema="s")
    register(fixture, FIRST)  # which makes one
    original = format_of(JSON).validator

    def counted(schema: Schema) -> Validator:
        made.append(schema.name)
        return original(schema)

    monkeypatch.setattr("penstock.broker.schemas.formats.json_schema.validator", counted)
    for _ in range(3):
        check(fixture, b"{}", b"{}")
    assert made == []
    monkeypatch.setattr(module._Validators, "ROOM", 16 * 600)
    for name in ("x", "y", "z"):
        register(fixture, FIRST, name)
        fixture.broker.schemas.validate(ANONYMOUS, DEFAULT_SCOPE, name, b"{}")
    assert made == ["x", "y", "z"] and len(fixture.broker.schemas._validators._made) == 2
    check(fixture, b"{}")
    assert made == ["x", "y", "z", "s"]


@pytest.mark.process
def test_a_broker_without_schemas_loads_none_of_their_libraries() -> None:
    code = """
import sys
from tests.broker.broker_fixture import BrokerFixture
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.names import DEFAULT_SCOPE
import penstock.server.server, penstock.cli.main
world = BrokerFixture()
world.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 1)
world.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [b"v"])
world.commit()
world.broker.schemas.warm()
print(sorted({"jsonschema_rs", "fastavro", "avro", "google.protobuf", "grpc_tools"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[]\n", done.stderr


# -- access


def test_a_list_holds_only_what_may_be_seen() -> None:
    fixture = BrokerFixture()
    for name in ("open-1", "open-2", "secret"):
        register(fixture, FIRST, name)
    grants = [Grant("alice", frozenset({Permission.DESCRIBE}), topic="open-*")]
    fixture.options["access"] = AccessPolicy(True, grants)
    fixture.restart()
    alice = Identity("alice")
    found = fixture.broker.schemas.list(alice, DEFAULT_SCOPE)
    assert [schema.name for schema in found] == ["open-1", "open-2"]
    assert fixture.broker.schemas.get(alice, DEFAULT_SCOPE, "open-1").version == 1
    for name in ("secret", "missing"):
        with pytest.raises(AccessDenied):
            fixture.broker.schemas.list(alice, DEFAULT_SCOPE, name)
        with pytest.raises(AccessDenied):
            fixture.broker.schemas.get(alice, DEFAULT_SCOPE, name)
    with pytest.raises(AccessDenied):
        fixture.broker.schemas.register(alice, DEFAULT_SCOPE, "open-1", JSON, FIRST)


def test_values_as_confluents_serializers_write_them() -> None:
    """With the id of a version before them, they are checked by that version; other ids are no ids."""
    fixture = BrokerFixture()
    old, new = register(fixture, FIRST), register(fixture, SECOND)
    other = register(fixture, of(a="string"), name="other")
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 1, TopicSettings(schema="s"))
    topic = fixture.broker.topics.describe(ANONYMOUS, DEFAULT_SCOPE, "t").topic

    def framed(number: int, value: bytes) -> bytes:
        return b"\0" + number.to_bytes(4, "big") + value

    values = [
        framed(old.id, b'{"a": "x", "b": "no number, but that version does not say so"}'),
        framed(new.id, b'{"a": "x", "b": "no number"}'),
        framed(new.id, b'{"a": "x", "b": 1}'),
        framed(other.id, b'{"a": "x"}'),
        framed(99, b'{"a": "x"}'),
        b"\0",
        b'{"a": "x"}',
    ]
    assert sorted(fixture.broker.schemas.check(topic, values)) == [1, 3, 4, 5]
