"""Checks a codec against vectors: it must decode the bytes to the vector's fields, encode these to the same bytes, and
reject invalid bytes in the protocol's way, with no other exception."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.conformance.codecs import Codec, Rejected, codec
from penstock.conformance.results import FAILED, OK, Result
from penstock.conformance.vectors import Vector, vectors


def check_protocol(protocol: str) -> list[Result]:
    """The results of all vectors of a protocol with our codec."""
    ours = codec(protocol)
    return [check(protocol, each, ours) for each in vectors(protocol)]


def check(protocol: str, vector: Vector, ours: Codec) -> Result:
    wrong = _wrong(vector, ours)
    return Result(protocol, vector.name, FAILED if wrong else OK, wrong, vector.why, vector.source)


def _wrong(vector: Vector, ours: Codec) -> str:
    """The error; empty if the vector passes."""
    if (vector.expect is None) == (vector.reject is None):
        return "the vector must say either what to expect or what to reject"
    try:
        data = vector.data
    except ValueError as error:
        return f"the vector's hex cannot be read: {error}"
    for pieces, how in (([data], "whole"), ([bytes((byte,)) for byte in data], "byte by byte")):
        wrong = _of_pieces(vector, ours, pieces)
        if wrong:
            return f"{wrong} (fed {how})"
    return ""


def _of_pieces(vector: Vector, ours: Codec, pieces: Sequence[bytes]) -> str:
    try:
        message = ours.read(vector, pieces)
    except Rejected as refusal:
        return _of_refusal(vector, refusal)
    except Exception as error:  # noqa: BLE001 - any other exception of a codec is a failure to report
        return f"raised {type(error).__name__}: {error}"
    said = ours.fields(vector, message)
    if vector.expect is None:
        return f"must be refused, but was read as {said}"
    wrong = differences(vector.expect, said)
    if wrong:
        return "; ".join(wrong)
    if not vector.canonical:
        return ""
    written = ours.write(vector, message)
    if written is not None and written != vector.data:
        return f"written again, it is {written.hex()}"
    return ""


def _of_refusal(vector: Vector, refusal: Rejected) -> str:
    if vector.reject is None:
        return f"was refused: {refusal}"
    actual = {"how": refusal.how, "code": refusal.code, "message": refusal.text}
    wrong = [
        f"refused with {key} {actual.get(key)!r}, {value!r} expected"
        for key, value in vector.reject.items()
        if actual.get(key) != value
    ]
    return "; ".join(wrong)


# -- comparing


def differences(expected: Any, actual: Any, path: str = "") -> list[str]:
    """The paths at which the decoded message differs from the vector. Fields that the vector does not have must be
    empty."""
    if isinstance(expected, Mapping) and set(expected) == {"text"}:
        expected = "0x" + str(expected["text"]).encode().hex()
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        found = [f"{path}{key} is missing" for key in expected.keys() - actual.keys() if expected[key] is not None]
        for key, value in actual.items():
            if key in expected:
                found += differences(expected[key], value, f"{path}{key}.")
            elif not _without_content(value):
                found.append(f"{path}{key} is {value!r}, and the vector does not have it")
        return sorted(found)
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        return [text for at, pair in enumerate(zip(expected, actual, strict=True))
                for text in differences(*pair, f"{path}{at}.")]  # fmt: skip
    same = expected == actual and isinstance(expected, bool) == isinstance(actual, bool)
    return [] if same else [f"{path.rstrip('.')} is {actual!r}, {expected!r} expected"]


def _without_content(value: Any) -> bool:
    return value is None or value is False or value in ("", "0x") or value == []
