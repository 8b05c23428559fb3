"""The suite notices what is wrong: a vector or a codec that was changed on purpose is found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from penstock.conformance.checker import check, differences
from penstock.conformance.codecs import Rejected, codec
from penstock.conformance.results import FAILED, OK, Result, as_json, counted
from penstock.conformance.vectors import PROTOCOLS, Vector, vectors


def changed(value: Any) -> Iterator[Any]:
    """The value with one of its leaves replaced, for each of them."""
    if isinstance(value, dict):
        for key, inner in value.items():
            for other in changed(inner):
                yield value | {key: other}
    elif isinstance(value, list):
        yield [*value, "one more"]
        for at, inner in enumerate(value):
            for other in changed(inner):
                yield [*value[:at], other, *value[at + 1 :]]
    elif isinstance(value, bool) or value is None:
        yield "something else"
    elif isinstance(value, int):
        yield value + 1
    else:
        yield value + "00"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_field_of_a_vector_can_be_changed_unnoticed(protocol: str) -> None:
    ours = codec(protocol)
    unnoticed = []
    for vector in vectors(protocol):
        for name in ("expect", "reject"):
            said = getattr(vector, name)
            if said is None or len(vector.hex) > 1000:
                continue
            unnoticed += [
                (vector.name, other)
                for other in changed(said)
                if check(protocol, msgspec.structs.replace(vector, **{name: other}), ours).status == OK
            ]
    assert unnoticed == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_vector_that_is_turned_round_is_noticed(protocol: str) -> None:
    ours = codec(protocol)
    for vector in vectors(protocol):
        if vector.expect is None:
            turned = msgspec.structs.replace(vector, reject=None, expect={})
        else:
            turned = msgspec.structs.replace(vector, expect=None, reject={"how": "close"})
        assert check(protocol, turned, ours).status == FAILED, vector.name


VECTOR = Vector(name="v", why="w", source="s", kind="frame", hex="0102", expect={"a": 1, "b": "0x02"})


class Own:
    """A codec that does what a test wants."""

    def __init__(self, said: Any, written: bytes | None = b"\1\2") -> None:
        self.said = said
        self.written = written
        self.fed: list[Sequence[bytes]] = []

    def read(self, vector: Vector, pieces: Sequence[bytes]) -> Any:  # noqa: ARG002
        self.fed.append(pieces)
        if isinstance(self.said, BaseException):
            raise self.said
        return self.said

    def fields(self, vector: Vector, message: Any) -> dict[str, Any]:  # noqa: ARG002
        return dict(message)

    def write(self, vector: Vector, message: Any) -> bytes | None:  # noqa: ARG002
        return self.written


GOOD = {"a": 1, "b": "0x02"}


def test_bytes_are_fed_whole_and_one_by_one() -> None:
    own = Own(GOOD)
    assert check("felix", VECTOR, own) == Result("felix", "v", OK, "", "w", "s")
    assert own.fed == [[b"\1\2"], [b"\1", b"\2"]]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (Own(GOOD | {"a": 2}), "a is 2, 1 expected"),
        (Own(GOOD | {"a": True}), "a is True, 1 expected"),
        (Own({"a": 1}), "b is missing"),
        (Own(GOOD | {"c": 3}), "c is 3, and the vector does not have it"),
        (Own(GOOD, b"\1\3"), "written again, it is 0103"),
        (Own(Rejected("close", "no")), "was refused: close: no"),
        (Own(ZeroDivisionError("oops")), "raised ZeroDivisionError: oops"),
    ],
)
def test_a_codec_that_is_wrong_is_told_how(own: Own, said: str) -> None:
    result = check("felix", VECTOR, own)
    assert result.status == FAILED and said in result.detail


def test_a_field_without_content_need_not_be_named() -> None:
    assert check("felix", VECTOR, Own(GOOD | {"c": None, "d": [], "e": ""})).status == OK


def test_what_is_not_canonical_is_not_written_again() -> None:
    assert check("felix", msgspec.structs.replace(VECTOR, canonical=False), Own(GOOD, b"other")).status == OK


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (Own(GOOD), "must be refused, but was read"),
        (Own(Rejected("close", "no", 7)), "refused with how 'close', 'error' expected"),
        (Own(Rejected("error", "no", 8)), "refused with code 8, 7 expected"),
        (Own(Rejected("error", "other", 7)), "refused with message 'other', 'no' expected"),
        (Own(ValueError("oops")), "raised ValueError: oops"),
    ],
)
def test_a_refusal_must_be_the_protocols_own(own: Own, said: str) -> None:
    vector = msgspec.structs.replace(VECTOR, expect=None, reject={"how": "error", "code": 7, "message": "no"})
    assert check("felix", vector, Own(Rejected("error", "no", 7))).status == OK
    result = check("felix", vector, own)
    assert result.status == FAILED and said in result.detail


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hex": "0x"}, "hex cannot be read"),
        ({"expect": None}, "either what to expect or what to reject"),
        ({"reject": {}}, "either what to expect or what to reject"),
    ],
)
def test_a_vector_that_makes_no_sense_is_a_failure(changes: dict[str, Any], said: str) -> None:
    assert said in check("felix", msgspec.structs.replace(VECTOR, **changes), Own(GOOD)).detail


def test_texts_stand_for_their_bytes() -> None:
    assert differences({"a": {"text": "hi"}}, {"a": "0x6869"}) == []
    assert differences({"a": [{"text": "hi"}]}, {"a": ["0x6868"]}) != []


def test_results_are_counted_by_file() -> None:
    results = [Result("felix", "a/x", OK), Result("felix", "a/y", FAILED), Result("felix", "b/x", "skipped")]
    assert [(each.group, each.ok, each.failed, each.skipped) for each in counted(results)] == [
        ("a", 1, 1, 0),
        ("b", 0, 0, 1),
    ]
    assert as_json(results)["counts"] == {"ok": 1, "failed": 1, "skipped": 1}
    assert as_json(results)["ok"] is False and as_json(results[:1])["ok"] is True
