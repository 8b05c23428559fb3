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
    world: BrokerFixture, definition: bytes, name: str = "s", kind: SchemaKind = JSON, scope: Scope = DEFAULT_SCOPE
) -> Schema:
    work = world.broker.schemas.register(ANONYMOUS, scope, name, kind, definition)
    work.run()
    schema, _ = work.finish()
    world.commit()
    return schema


def versions(world: BrokerFixture, name: str | None = None, scope: Scope = DEFAULT_SCOPE) -> list[tuple[str, int]]:
    return [(schema.name, schema.version) for schema in world.broker.schemas.list(ANONYMOUS, scope, name)]


def topic(world: BrokerFixture, **settings: Any) -> None:
    world.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 1, TopicSettings(**settings))
    world.commit()


def check(world: BrokerFixture, *values: bytes) -> dict[int, list[str]]:
    found = world.broker.topics.describe(ANONYMOUS, DEFAULT_SCOPE, "t").topic
    return world.broker.schemas.check(found, values)


# -- versions


def test_versions_are_numbered_and_kept() -> None:
    world = BrokerFixture()
    schemas = world.broker.schemas
    first = register(world, FIRST)
    assert first == Schema("s", 1, JSON, FIRST, world.now)
    assert register(world, SECOND).version == 2
    register(world, b'"string"', "avro", AVRO)
    register(world, FIRST, "s", scope=OTHER)
    for _ in range(2):
        assert schemas.get(ANONYMOUS, DEFAULT_SCOPE, "s").definition == SECOND
        assert schemas.get(ANONYMOUS, DEFAULT_SCOPE, "s", 1) == first
        assert versions(world) == [("avro", 1), ("s", 1), ("s", 2)]
        assert versions(world, "s") == [("s", 1), ("s", 2)] and versions(world, "none") == []
        assert versions(world, scope=OTHER) == [("s", 1)]
        world.restart()
        schemas = world.broker.schemas


def test_the_same_definition_again_is_the_same_version_and_stores_nothing() -> None:
    world = BrokerFixture()
    register(world, FIRST)
    position = world.broker.position
    work = world.broker.schemas.register(ANONYMOUS, DEFAULT_SCOPE, "s", JSON, FIRST)
    assert work.ready
    work.run()
    schema, group = work.finish()
    assert schema.version == 1 and group is None
    assert not world.committer.run() and world.broker.position == position
    register(world, SECOND)
    world.broker.schemas.set_mode(ANONYMOUS, DEFAULT_SCOPE, "s", Compatibility.NONE)
    assert register(world, FIRST).version == 3  # only the latest counts


def test_a_version_that_is_not_committed_yet_is_told_with_its_group() -> None:
    world = BrokerFixture()
    groups = []
    for _ in range(2):
        work = world.broker.schemas.register(ANONYMOUS, DEFAULT_SCOPE, "s", JSON, FIRST)
        work.run()
        groups.append(work.finish()[1])
    assert groups[0] is not None and groups[0] is groups[1] and not committed(groups[0])


@pytest.mark.parametrize("stage", ["registered", "first", "newest", "all", "again"])
def test_a_number_is_never_used_again(stage: str) -> None:
    world = BrokerFixture()
    schemas = world.broker.schemas

    def restart_at(this: str) -> None:
        nonlocal schemas
        world.commit()
        if this == stage:
            world.restart()
            schemas = world.broker.schemas

    register(world, FIRST)
    register(world, SECOND)
    register(world, of(a="string", b="integer"))
    restart_at("registered")
    schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s", 1)
    restart_at("first")
    assert versions(world) == [("s", 2), ("s", 3)]
    schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s", 3)
    restart_at("newest")
    assert schemas.get(ANONYMOUS, DEFAULT_SCOPE, "s").version == 2
    schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s")
    restart_at("all")
    assert versions(world) == []
    with pytest.raises(SchemaNotFound):
        schemas.get(ANONYMOUS, DEFAULT_SCOPE, "s")
    assert register(world, b'"int"', kind=AVRO).version == 4  # it need not fit what is gone
    restart_at("again")
    assert versions(world) == [("s", 4)]


def test_numbers_survive_a_snapshot_of_an_empty_subject() -> None:
    world = BrokerFixture()
    register(world, FIRST)
    world.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s")
    world.commit()
    world.broker.close()  # takes a snapshot
    world.open()
    assert versions(world) == []
    assert register(world, FIRST).version == 2


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
    world = BrokerFixture()
    register(world, FIRST)
    with pytest.raises(SchemaNotFound):
        call(world.broker.schemas)


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
        world = BrokerFixture()
        register(world, FIRST)
        world.broker.schemas.set_mode(ANONYMOUS, DEFAULT_SCOPE, "s", mode)
        world.commit()
        world.restart()
        assert world.broker.schemas.mode(ANONYMOUS, DEFAULT_SCOPE, "s") is mode
        if name in allowed:
            assert register(world, definition, kind=kind).version == 2
        else:
            with pytest.raises(SchemaIncompatible):
                register(world, definition, kind=kind)
            assert versions(world) == [("s", 1)]


def test_a_subject_that_was_deleted_begins_anew_with_the_usual_mode() -> None:
    world = BrokerFixture()
    register(world, FIRST)
    world.broker.schemas.set_mode(ANONYMOUS, DEFAULT_SCOPE, "s", Compatibility.NONE)
    world.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s")
    register(world, FIRST)
    for _ in range(2):
        assert world.broker.schemas.mode(ANONYMOUS, DEFAULT_SCOPE, "s") is Compatibility.BACKWARD
        world.restart()


def test_the_problem_is_told() -> None:
    world = BrokerFixture()
    register(world, FIRST)
    with pytest.raises(SchemaIncompatible, match=r"^new required field 'f' not in old schema$"):
        register(world, of("a", "f", a="string", f="string"))
    world.broker.schemas.set_mode(ANONYMOUS, DEFAULT_SCOPE, "s", Compatibility.FULL)
    with pytest.raises(SchemaIncompatible, match=r"^field 'a' is required in the old schema, optional in the new$"):
        register(world, WIDER)


def test_the_decision_is_taken_by_what_is_true_at_the_end() -> None:
    """Two clients at once, both with the next version: the second is compared with the first one's."""
    world = BrokerFixture()
    schemas = world.broker.schemas
    slow = schemas.register(ANONYMOUS, DEFAULT_SCOPE, "s", JSON, of("a", "c", a="string", c="string"))
    slow.run()
    register(world, FIRST)
    with pytest.raises(SchemaIncompatible, match="'c' not in old"):
        slow.finish()
    same, other = (
        schemas.register(ANONYMOUS, DEFAULT_SCOPE, "s", JSON, definition) for definition in (SECOND, of(a="string"))
    )
    same.run()
    other.run()
    register(world, SECOND)
    assert same.finish()[0].version == 2  # the same definition
    assert other.finish()[0].version == 3
    loosened = schemas.register(ANONYMOUS, DEFAULT_SCOPE, "s", JSON, of(a="integer"))
    loosened.run()
    schemas.set_mode(ANONYMOUS, DEFAULT_SCOPE, "s", Compatibility.NONE)
    assert loosened.finish()[0].version == 4


def test_registering_goes_off_the_event_loop_two_at_a_time() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    world = BrokerFixture(executor=later(calls))
    finished = []
    for number in range(3):
        work = world.broker.schemas.register(ANONYMOUS, DEFAULT_SCOPE, f"s{number}", JSON, FIRST)
        assert not work.ready
        work.start(world.broker.executor, lambda work=work: finished.append(work.finish()[0].name))  # type: ignore[misc]
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
    world = BrokerFixture()
    with pytest.raises(error):
        register(world, definition, name, kind)
    assert not world.committer.run() and versions(world) == []


def test_a_bad_scope_is_refused() -> None:
    with pytest.raises(InvalidName):
        register(BrokerFixture(), FIRST, scope=Scope("a b", "default"))


def test_numbers_and_bytes_are_bounded() -> None:
    world = BrokerFixture(limits=Limits(schema_versions=2, schema_subjects=2, schema_bytes=2_000))
    register(world, FIRST)
    register(world, SECOND)
    with pytest.raises(LimitReached, match="2 versions"):
        register(world, WIDER)
    world.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s", 1)
    assert register(world, WIDER).version == 3
    register(world, FIRST, "other", scope=OTHER)
    with pytest.raises(LimitReached, match="2 names"):
        register(world, FIRST, "third")
    world.broker.schemas.delete(ANONYMOUS, OTHER, "other")
    with pytest.raises(LimitReached, match="2000 bytes"):
        register(world, FIRST + b" " * 1_500, "third")
    for _ in range(2):
        register(world, FIRST + b" " * 1_000, "third")
        world.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "third")  # and its bytes are free again
        world.commit()
        world.restart()


def test_of_empty_subjects_the_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.schemas.schema.KEPT_EMPTY", 2)
    world = BrokerFixture()
    for name in ("a", "b", "c"):
        register(world, FIRST, name)
    for name in ("b", "a", "c"):
        world.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, name)
    world.commit()
    for _ in range(2):
        assert sorted(world.broker.state_log.state.schemas[DEFAULT_SCOPE]) == ["a", "c"]
        world.restart()
    assert register(world, FIRST, "a").version == 2


def test_a_failed_commit_takes_everything_back() -> None:
    world = BrokerFixture()
    register(world, FIRST)
    topic(world, schema="s")
    assert check(world, b'{"a": "x", "b": "no integer"}') == {}
    fault = world.fill_disk()
    work = world.broker.schemas.register(ANONYMOUS, DEFAULT_SCOPE, "s", JSON, SECOND)
    work.run()
    schema, group = work.finish()
    assert schema.version == 2 and check(world, b'{"a": "x", "b": "no integer"}') != {}
    world.commit()
    assert group is not None and not committed(group)
    assert versions(world) == [("s", 1)]
    assert check(world, b'{"a": "x", "b": "no integer"}') == {}
    with pytest.raises(LogError):
        world.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s")
    world.free_disk(fault)
    assert register(world, of("a", a="string", b="boolean")).version == 2  # the number was never given
    assert check(world, b'{"a": "x", "b": 1}') == {0: ["type mismatch at b: expected boolean, got integer"]}


# -- checking records


def test_a_topic_without_a_schema_takes_anything() -> None:
    world = BrokerFixture()
    topic(world)
    assert check(world, b"", b"\xff") == {}


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
    world = BrokerFixture()
    register(world, definition, kind=kind)
    topic(world, schema="s")
    for _ in range(2):
        found = check(world, good, bad, good, bad)
        assert list(found) == [1, 3] and found[1] and found[1] == found[3]
        world.restart()
        world.broker.schemas.warm()
    world.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [good])
    with pytest.raises(RecordRejected):
        world.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [good, bad])


def test_the_latest_version_counts_from_the_moment_it_is_registered_or_deleted() -> None:
    world = BrokerFixture()
    register(world, FIRST)
    topic(world, schema="s")
    message = b'{"a": "x", "b": "text"}'
    assert check(world, message) == {}
    register(world, SECOND)
    assert check(world, message) == {0: ["type mismatch at b: expected integer, got string"]}
    world.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s", 2)
    assert check(world, message) == {}
    world.broker.schemas.delete(ANONYMOUS, DEFAULT_SCOPE, "s")
    assert check(world, message, b"{}") == {index: ["the topic's schema 's' does not exist"] for index in (0, 1)}


def test_the_schema_is_that_of_the_topics_own_tenant() -> None:
    world = BrokerFixture()
    register(world, FIRST, scope=OTHER)
    topic(world, schema="s")
    assert check(world, b'{"a": "x"}') == {0: ["the topic's schema 's' does not exist"]}


def test_a_message_can_be_checked_with_any_version() -> None:
    world = BrokerFixture()
    register(world, FIRST)
    register(world, SECOND)
    message = b'{"a": "x", "b": "text"}'
    validate = world.broker.schemas.validate
    assert validate(ANONYMOUS, DEFAULT_SCOPE, "s", message) == ["type mismatch at b: expected integer, got string"]
    assert validate(ANONYMOUS, DEFAULT_SCOPE, "s", message, 1) == []


def test_reasons_are_few_and_short() -> None:
    world = BrokerFixture(limits=Limits(schema_record_bytes=20_000))
    names = [f"{number:0500}" for number in range(20)]
    register(world, of(*names))
    found = world.broker.schemas.validate(ANONYMOUS, DEFAULT_SCOPE, "s", b"{}")
    assert len(found) == module.MAX_REASONS
    assert all(len(reason) == module.MAX_REASON for reason in found)
    large = world.broker.schemas.validate(ANONYMOUS, DEFAULT_SCOPE, "s", b" " * 20_001)
    assert large == ["the message has 20001 bytes; those with a schema may have 20000"]


def test_validators_are_made_once_and_room_for_them_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    world = BrokerFixture()
    topic(world, schema="s")
    register(world, FIRST)  # which makes one
    original = format_of(JSON).validator

    def counted(schema: Schema) -> Validator:
        made.append(schema.name)
        return original(schema)

    monkeypatch.setattr("penstock.broker.schemas.formats.json_schema.validator", counted)
    for _ in range(3):
        check(world, b"{}", b"{}")
    assert made == []
    monkeypatch.setattr(module._Validators, "ROOM", 16 * 600)
    for name in ("x", "y", "z"):
        register(world, FIRST, name)
        world.broker.schemas.validate(ANONYMOUS, DEFAULT_SCOPE, name, b"{}")
    assert made == ["x", "y", "z"] and len(world.broker.schemas._validators._made) == 2
    check(world, b"{}")
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
    world = BrokerFixture()
    for name in ("open-1", "open-2", "secret"):
        register(world, FIRST, name)
    grants = [Grant("alice", frozenset({Permission.DESCRIBE}), topic="open-*")]
    world.options["access"] = AccessPolicy(True, grants)
    world.restart()
    alice = Identity("alice")
    found = world.broker.schemas.list(alice, DEFAULT_SCOPE)
    assert [schema.name for schema in found] == ["open-1", "open-2"]
    assert world.broker.schemas.get(alice, DEFAULT_SCOPE, "open-1").version == 1
    for name in ("secret", "missing"):
        with pytest.raises(AccessDenied):
            world.broker.schemas.list(alice, DEFAULT_SCOPE, name)
        with pytest.raises(AccessDenied):
            world.broker.schemas.get(alice, DEFAULT_SCOPE, name)
    with pytest.raises(AccessDenied):
        world.broker.schemas.register(alice, DEFAULT_SCOPE, "open-1", JSON, FIRST)
