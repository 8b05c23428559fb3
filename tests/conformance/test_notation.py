"""The notation of bytes in conversations."""

from __future__ import annotations

import pytest

from penstock.conformance import notation
from penstock.conformance.notation import BadNotation

VARIABLES = {"topic": b"demo", "raw": b"\xff\x00"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("0a 1B2c", "0a1b2c"),
        ("00*3 ff", "000000ff"),
        ("'hi'", "6869"),
        ("'${topic}!'", "64656d6f21"),
        ("${raw}", "ff00"),
        ("u8( 'hi' )", "026869"),
        ("u16('hi')", "00026869"),
        ("u32( u16( 'a' ) 00 )", "0000000400016100"),
        ("u64( 01 )", "000000000000000101"),
        ("u64le( 01 )", "010000000000000001"),
        ("varint( 00*300 )", "ac02" + "00" * 300),
        ("01 # a comment ) ?? \n 02", "0102"),
        ("vdb5( 00 01 2a 00 00 05 00 )", "56444220000500000007a036cf3b00012a00000500"),  # the reference's own example
    ],
)
def test_what_is_sent(text: str, expected: str) -> None:
    assert notation.data(text, VARIABLES).hex() == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0", "none of what can be written"),
        ("xyz", "none of what can be written"),
        ("'open", "none of what can be written"),
        ("u16( 00", "is not closed"),
        ("00 )", "closes nothing"),
        ("${nobody}", "nothing is known of"),
        ("'${nobody}'", "nothing is known of"),
        ("00 ??", "only what is expected may be left open"),
        ("<id:4>", "only what is expected may be left open"),
        ("varint( ... )", "cannot count what is left open"),
    ],
)
def test_what_cannot_be_sent(text: str, said: str) -> None:
    with pytest.raises(BadNotation, match=said):
        notation.data(text, VARIABLES)


@pytest.mark.parametrize(
    ("text", "actual", "kept"),
    [
        ("01 ?? 03", "01ff03", {}),
        ("01 ??*2", "010203", {}),
        ("<id:2> 03", "010203", {"id": b"\1\2"}),
        ("<id:varint> 03", "ac0203", {"id": b"\xac\x02"}),
        ("varint( 'a' ) <id:varint>", "016105", {"id": b"\5"}),
        ("u16( <id:varint> )", "000205", {"id": b"\5"}),  # its length cannot be known then
        ("<id:u16> 03", "0002616203", {"id": b"\0\2ab"}),
        ("01 ...", "01", {}),
        ("01 ...", "0102030405", {}),
        ("u16( <id:2> )", "0002abcd", {"id": b"\xab\xcd"}),
        ("u16( 01 ... )", "0005010203", {}),  # nor then
        ("vdb1( ?? )", "56444220000100000001deadbeef07", {}),  # nor a checksum
    ],
)
def test_what_is_expected_and_comes(text: str, actual: str, kept: dict[str, bytes]) -> None:
    assert notation.match(notation.pattern(text, VARIABLES), bytes.fromhex(actual)) == kept


@pytest.mark.parametrize(
    ("text", "actual", "said"),
    [
        ("0102", "0103", "at byte 0: 0102 expected, 0103 found"),
        ("01 02", "0103", "at byte 1: 02 expected, 03 found"),
        ("01 ??", "01", "too short: 1 bytes, 2 or more expected"),
        ("<id:varint>", "ffff", "too short"),
        ("<id:u16>", "000361", "too short"),
        ("01", "0102", "too long: 2 bytes, 1 expected; behind them 02"),
        ("u16( ?? )", "000207", "at byte 0: 0001 expected, 0002 found"),
        ("'hello'", "68656c6c70", "'hello' expected, 'hellp' found"),
        ("vdb1( 07 )", "56444220000100000001deadbeef07", "at byte 10"),
    ],
)
def test_what_is_expected_and_does_not_come(text: str, actual: str, said: str) -> None:
    wrong = notation.match(notation.pattern(text, VARIABLES), bytes.fromhex(actual))
    assert isinstance(wrong, str) and said in wrong


def test_long_bytes_are_shown_in_part() -> None:
    assert notation.shown(b"a" * 100) == "'" + "a" * 48 + "…'"
    assert notation.shown(b"\xff" * 100) == "ff" * 48 + "…"
