from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.broker.errors import InvalidName
from penstock.broker.names import (
    DEFAULT_SCOPE,
    MAX_NAME_BYTES,
    MAX_NAME_CHARACTERS,
    MAX_SCOPE_CHARACTERS,
    Scope,
    check_group,
    check_topic,
    scope,
)


@pytest.mark.parametrize(
    "name",
    ["t", "a" * 256, "orders.v1_x-y", "eu/orders/2026", "naïve", "日本", "😀" * 256, "with space", "..a", "a..", "*"],
)
def test_topic_names_that_are_allowed(name: str) -> None:
    check_topic(name)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "0 characters"),
        ("a" * 257, "257 characters"),
        (".", "segment"),
        ("..", "segment"),
        ("a/../b", "segment"),
        ("./a", "segment"),
        ("/a", "segment"),
        ("a/", "segment"),
        ("a//b", "segment"),
        ("a\\b", "backslash"),
        ("a\nb", "control"),
        ("a\x00", "control"),
        ("a\x7f", "control"),
        ("a\x85", "control"),
        ("a\u202eb", "control"),  # turns the direction of text around
        ("a\ud800", "control"),  # half of a character
    ],
)
def test_topic_names_that_are_refused(name: str, complaint: str) -> None:
    with pytest.raises(InvalidName, match=complaint):
        check_topic(name)


@pytest.mark.parametrize("name", ["", "g" * 257, "a\tb", "\u200b"])
def test_group_names_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        check_group(name)


@pytest.mark.parametrize("name", ["g", "team/billing", "a\\b", "..", "группа"])
def test_group_names_that_are_allowed(name: str) -> None:
    check_group(name)


@pytest.mark.parametrize("name", ["a", "7", "A_b-c.d", "x" * 64])
def test_scopes_that_are_allowed(name: str) -> None:
    assert scope(name, name) == Scope(name, name)


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "x" * 65, "a/b", "a b", "é", "a\n", "*"])
@pytest.mark.parametrize("place", [lambda name: ("default", name), lambda name: (name, "default")])
def test_scopes_that_are_refused(name: str, place: Callable[[str], tuple[str, str]]) -> None:
    with pytest.raises(InvalidName):
        scope(*place(name))


def test_a_message_shows_a_bad_name_in_a_way_that_cannot_confuse_a_terminal() -> None:
    with pytest.raises(InvalidName) as raised:
        check_topic("\x1b[2J" + "a" * 200)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 150


def test_the_default_scope() -> None:
    assert scope("default", "default") == DEFAULT_SCOPE


# -- the pages of the protocols

PAGES = Path(__file__).parents[2] / "docs" / "protocols"


@pytest.mark.parametrize("protocol", ["rustlog", "blipmq", "flymq", "kimberlite", "felix"])
def test_the_limit_of_names_is_in_the_page_of_each_protocol(protocol: str) -> None:
    text = " ".join((PAGES / f"{protocol}.md").read_text().split())
    (found,) = re.findall(r"topic's name has 1 to ([\d,]+) characters, ([\d,]+) bytes of UTF-8 at most", text)
    characters, size = (int(number.replace(",", "")) for number in found)
    assert (characters, size) == (MAX_NAME_CHARACTERS, MAX_NAME_BYTES)
    check_topic("\U0001f600" * (size // 4))
    with pytest.raises(InvalidName):
        check_topic("a" * (characters + 1))


@pytest.mark.parametrize("protocol", ["kimberlite", "felix"])
def test_so_is_that_of_tenants_where_there_are_any(protocol: str) -> None:
    text = " ".join((PAGES / f"{protocol}.md").read_text().split())
    assert re.findall(r"1 to (\d+) ASCII letters, digits, `_`, `-` and `\.`, the first not a dot", text) == [
        str(MAX_SCOPE_CHARACTERS)
    ]
