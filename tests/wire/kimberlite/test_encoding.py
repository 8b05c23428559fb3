"""The three encodings: values at their bounds, what is refused, and that nothing is made of a length alone."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.kimberlite.strategies import i64, text, values

from penstock.wire.kimberlite.codec.encoding import BINCODE, POSTCARD, PRINTED, Encoding, codec
from penstock.wire.kimberlite.codec.kinds import BOOL, BYTES, I64, TEXT, U8, U16, U32, U64, VALUE, Kind, ListOf, Option
from penstock.wire.kimberlite.errors import MalformedPayload
from penstock.wire.kimberlite.values import Timestamp

ENCODINGS = (BINCODE, PRINTED, POSTCARD)
WIDE = (BINCODE, PRINTED)

every_encoding = pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda each: each.name)
wide = pytest.mark.parametrize("encoding", WIDE, ids=lambda each: each.name)


def written(kind: Kind, value: Any, encoding: Encoding) -> str:
    out = bytearray()
    codec(kind, encoding).write(value, out)
    return out.hex()


def read(kind: Kind, data: bytes, encoding: Encoding) -> Any:
    value, at = codec(kind, encoding).read(data, 0)
    assert at == len(data), "not all was read"
    return value


def refused(kind: Kind, data: str, encoding: Encoding) -> str:
    with pytest.raises(MalformedPayload) as raised:
        codec(kind, encoding).read(bytes.fromhex(data), 0)
    return str(raised.value)


# -- integers


@pytest.mark.parametrize(
    ("kind", "value", "short", "long"),
    [
        (U8, 255, "ff", "ff"),
        (U16, 1, "01", "0100"),
        (U16, 0xFFFF, "ffff03", "ffff"),
        (U32, 127, "7f", "7f000000"),
        (U32, 128, "8001", "80000000"),
        (U32, 0xFFFF_FFFF, "ffffffff0f", "ffffffff"),
        (U64, 1 << 20, "808040", "0000100000000000"),
        (U64, (1 << 64) - 1, "ffffffffffffffffff01", "ffffffffffffffff"),
        (I64, 0, "00", "0000000000000000"),
        (I64, -1, "01", "ffffffffffffffff"),
        (I64, 1, "02", "0100000000000000"),
        (I64, -(1 << 63), "ffffffffffffffffff01", "0000000000000080"),
        (I64, (1 << 63) - 1, "feffffffffffffffff01", "ffffffffffffff7f"),
    ],
)
def test_integers(kind: Kind, value: int, short: str, long: str) -> None:
    for encoding, expected in ((POSTCARD, short), (BINCODE, long), (PRINTED, long)):
        assert written(kind, value, encoding) == expected
        assert read(kind, bytes.fromhex(expected), encoding) == value


def test_a_varint_need_not_be_minimal() -> None:
    assert read(U64, b"\x81\x80\x00", POSTCARD) == 1


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (U16, "ffff04"),  # 17 bits
        (U16, "80808000"),  # four bytes
        (U32, "ffffffff10"),
        (U64, "ffffffffffffffffff02"),
        (U64, "8080808080808080808000"),  # eleven bytes
        (U64, "80"),
        (U64, ""),
    ],
)
def test_a_varint_that_is_too_large_or_too_short_is_refused(kind: Kind, data: str) -> None:
    refused(kind, data, POSTCARD)


@pytest.mark.parametrize(("kind", "value"), [(U16, 1 << 16), (U32, -1), (U64, 1 << 64)])
def test_a_number_that_does_not_fit_is_not_written(kind: Kind, value: int) -> None:
    with pytest.raises(ValueError, match="bits"):
        written(kind, value, POSTCARD)


# -- flags, texts, lists


def test_flags_have_one_byte_except_as_they_were_printed() -> None:
    assert [written(Option(U8), 7, encoding) for encoding in ENCODINGS] == ["0107", "0100000007", "0107"]
    assert [written(Option(U8), None, encoding) for encoding in ENCODINGS] == ["00", "00000000", "00"]
    assert [written(BOOL, True, encoding) for encoding in ENCODINGS] == ["01", "01", "01"]


@every_encoding
def test_flags_are_nothing_but_0_and_1(encoding: Encoding) -> None:
    assert "no boolean" in refused(BOOL, "02", encoding)
    assert "optional" in refused(Option(BOOL), "02" + "00" * 4, encoding)


def test_texts_are_utf_8() -> None:
    assert written(TEXT, "hé", POSTCARD) == "0368c3a9"
    assert written(TEXT, "hé", BINCODE) == "03" + "00" * 7 + "68c3a9"
    assert "UTF-8" in refused(TEXT, "01ff", POSTCARD)


def test_values_say_what_they_are() -> None:
    cells = [None, -42, "hi", True, Timestamp(1)]
    assert [written(VALUE, cell, POSTCARD) for cell in cells] == ["00", "0153", "02026869", "0301", "0402"]
    assert written(VALUE, True, BINCODE) == "0300000001"
    refused(VALUE, "05", POSTCARD)


@every_encoding
@given(values)
def test_a_value_comes_back_as_the_same_type(encoding: Encoding, value: Any) -> None:
    again = read(VALUE, bytes.fromhex(written(VALUE, value, encoding)), encoding)
    assert again == value
    assert type(again) is type(value)


@every_encoding
@given(st.lists(st.binary(max_size=300), max_size=20) | st.integers(0, 200).map(lambda size: [bytes(size)] * 40))
def test_events_of_one_size_and_of_many_come_back(encoding: Encoding, events: list[bytes]) -> None:
    assert read(ListOf(BYTES), bytes.fromhex(written(ListOf(BYTES), events, encoding)), encoding) == events


@every_encoding
def test_events_that_begin_alike_are_not_taken_for_a_run(encoding: Encoding) -> None:
    events = [bytes(130)] * 9 + [bytes(386)]  # 82 01 and 82 03, or 82 00… and 82 01…
    assert read(ListOf(BYTES), bytes.fromhex(written(ListOf(BYTES), events, encoding)), encoding) == events


# -- what hostile lengths lead to


@every_encoding
@pytest.mark.parametrize("kind", [BYTES, TEXT, ListOf(U64), ListOf(BYTES), ListOf(TEXT)], ids=str)
@pytest.mark.parametrize("count", [9, 1000, 0xFFFF_FFFF, (1 << 64) - 1])
def test_a_length_is_compared_with_what_is_there(encoding: Encoding, kind: Kind, count: int) -> None:
    data = bytes.fromhex(written(U64, count, encoding)) + bytes(8)
    tracemalloc.start()
    with pytest.raises(MalformedPayload, match="past the end"):
        codec(kind, encoding).read(data, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000


@every_encoding
def test_a_list_has_a_most(encoding: Encoding) -> None:
    data = bytes.fromhex(written(ListOf(BYTES), [b""] * 11, encoding))
    assert len(codec(ListOf(BYTES, 11), encoding).read(data, 0)[0]) == 11
    with pytest.raises(MalformedPayload, match="11 elements; the most is 10"):
        codec(ListOf(BYTES, 10), encoding).read(data, 0)


@every_encoding
@given(st.lists(st.binary(max_size=20) | st.just(b"abc"), max_size=20), st.data())
def test_events_that_are_cut_off_are_refused(encoding: Encoding, events: list[bytes], data: st.DataObject) -> None:
    whole = bytes.fromhex(written(ListOf(BYTES), events, encoding))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(MalformedPayload):
        codec(ListOf(BYTES), encoding).read(whole[:cut], 0)


@wide
@given(i64, text)
def test_fixed_widths_leave_one_way_to_write_a_value(encoding: Encoding, number: int, word: str) -> None:
    for kind, value in ((I64, number), (TEXT, word)):
        data = bytes.fromhex(written(kind, value, encoding))
        assert bytes.fromhex(written(kind, read(kind, data, encoding), encoding)) == data
