from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.errors import InvalidArgument
from penstock.broker.fetch.filters import MAX_CHARACTERS, MAX_NAMES, MAX_WORK, compile_filter

PASSES = [
    # text, key, value
    ("error", None, b"an ERROR occurred"),
    ("ERROR", None, b"an error occurred"),
    ("error", b"Error-7", b"fine"),
    ("straße", None, "HAUPTSTRASSE straße".encode()),
    ("ÉTÉ", None, "un été".encode()),
    ("été", "ÉTÉ".encode(), b"\xff\xfe"),
    ("", None, b""),
    ("a.c", None, b"xa.cx"),  # as text
    ("a.c", None, b"xabcx"),  # as an expression
    (r"^\d{3}-\d+$", None, b"123-4567"),
    (r"^\d{3}-\d+$", b"123-4567", b"else"),
    ("h.llo", None, "hüllo".encode()),
    ("[", None, b"a [ bracket"),  # malformed, and yet text
    ("$.user.name", None, b'{"user":{"name":null}}'),
    ("$.user", None, b'{"user":{"name":"x"}}'),
    ("$.user.name", None, b"text with $.USER.name in it"),
    ("$.user.name", None, b'{"\\u0075ser":{"name":1}}'),
    ("$.größe", None, '{"größe":1}'.encode()),
]

FAILS = [
    ("error", None, b"fine"),
    ("error", b"", b"fine"),
    ("ERR.R", None, b"an error occurred"),  # an expression knows upper and lower case
    (r"^\d{3}$", b"12", b"1234"),
    ("[", None, b"no bracket"),
    ("(a{1000}){1000}", None, b"a" * 5000),
    ("$.user.name", None, b'{"user":{"age":1}}'),
    ("$.user.name", None, b'{"user":"name"}'),
    ("$.user.name", None, b'{"user":["name"]}'),
    ("$.user.0", None, b'{"user":["name"]}'),
    ("$.user", None, b'[{"user":1}]'),
    ("$.user", None, b'{"user":1'),
    ("$.user.name", None, b'{"user.name":1}'),
    ("$.a", None, b'{"a":' + b"[" * 100_000),
    ("$.a", None, b'{"\xff":1,"a":2}'),
    ("h.llo", None, b"h\xffllo"),
]


@pytest.mark.parametrize(("text", "key", "value"), PASSES)
def test_a_record_passes_that_fits_in_one_way(text: str, key: bytes | None, value: bytes) -> None:
    wanted = compile_filter(text)
    assert wanted(key, value)
    assert wanted.matches([key], [value]) == [0]


@pytest.mark.parametrize(("text", "key", "value"), FAILS)
def test_a_record_that_fits_in_no_way_does_not(text: str, key: bytes | None, value: bytes) -> None:
    wanted = compile_filter(text)
    assert not wanted(key, value)
    assert wanted.matches([key], [value]) == []


def test_columns_give_the_places_of_those_that_pass() -> None:
    values = [b"apple", b"pear", b"Pineapple", b"", b'{"apple":1}']
    assert compile_filter("apple").matches(None, values) == [0, 2, 4]
    assert compile_filter("apple").matches([None, b"APPLE", None, b"x", b""], values) == [0, 1, 2, 4]
    assert compile_filter("$.apple").matches(None, values) == [4]
    assert compile_filter("").matches(None, values) == [0, 1, 2, 3, 4]
    assert compile_filter("p+le").matches([None] * 5, values) == [0, 2, 4]


@pytest.mark.parametrize("text", ["(x+x+)+y", "(.*)*z", "(a|a)*b", "$." + ".".join("x" * 100)])
def test_time_grows_with_the_record_and_no_faster(text: str) -> None:
    wanted = compile_filter(text)
    began = time.process_time()
    assert not wanted(None, b"x" * 1_000_000)
    assert not wanted(None, b'{"x":' * 100_000)
    assert time.process_time() - began < 5  # by backtracking: longer than anybody waits


def test_an_expression_is_not_let_loose_on_a_record_that_would_take_too_long() -> None:
    """Time grows with the record and with the expression; nobody waits for the product of two large numbers."""
    wanted = compile_filter("[ab]*a[ab]{900}c")
    assert wanted.cost > 900
    assert not wanted(None, b"a" * 1000)
    with pytest.raises(InvalidArgument, match="too complex for a record of 1000000 bytes"):
        wanted(None, b"a" * 1_000_000)
    simple = compile_filter("a.c")
    assert simple.cost * (16 << 20) < MAX_WORK and not simple(None, b"a" * (16 << 20))
    assert compile_filter("plain text").cost == compile_filter("$.a.b").cost == 1


def test_an_expression_that_is_very_long_is_text() -> None:
    text = "(a|b)" * 200
    assert compile_filter(text)(None, b"x" + text.upper().encode())
    assert not compile_filter(text)(None, b"ab" * 500)


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\x01"])
def test_a_path_with_a_name_that_cannot_be_told_is_found_nowhere(name: str) -> None:
    value = msgspec.json.encode({name: 1})
    assert not compile_filter("$." + name)(None, value)
    assert compile_filter("$." + name)(None, b"$." + name.encode())  # but as text


def test_a_text_that_is_too_long_is_refused() -> None:
    compile_filter("x" * MAX_CHARACTERS)
    with pytest.raises(InvalidArgument, match="4097 characters"):
        compile_filter("x" * (MAX_CHARACTERS + 1))


def test_an_expression_that_would_take_too_much_memory_is_found_nowhere() -> None:
    assert compile_filter("(x{1000}|y)" * 10)(None, b"y" * 10)
    assert not compile_filter("(x{1000}|y)" * 100)(None, b"y" * 100)


@given(st.text(max_size=30), st.none() | st.binary(max_size=40), st.binary(max_size=80))
def test_no_filter_and_no_record_is_an_error(text: str, key: bytes | None, value: bytes) -> None:
    assert isinstance(compile_filter(text)(key, value), bool)


@given(st.text(max_size=10), st.binary(max_size=20), st.binary(max_size=20))
def test_what_holds_the_text_passes(text: str, before: bytes, after: bytes) -> None:
    encoded = text.encode(errors="ignore")
    wanted = compile_filter(encoded.decode())
    assert wanted(None, before + encoded + after) or not text.isascii()
    assert wanted(encoded, b"")


def test_a_path_has_no_more_names_than_can_be_prepared_in_a_moment() -> None:
    """Each takes some 30 µs on the event loop, and a filter is understood before anybody asks who sent it."""
    deepest = "$" + ".a" * MAX_NAMES
    assert compile_filter(deepest)(None, b'{"a":' * MAX_NAMES + b"1" + b"}" * MAX_NAMES)
    with pytest.raises(InvalidArgument, match=f"path of {MAX_NAMES + 1} names"):
        compile_filter(deepest + ".a")
