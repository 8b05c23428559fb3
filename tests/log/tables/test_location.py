"""The location of tables: one safe segment for any name that a topic may have."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.errors import InvalidName
from penstock.broker.names import check_topic
from penstock.log.tables.location import MAX_SEGMENT_BYTES, local_folder, quoted, table_ref

SEGMENT = re.compile(r"[A-Za-z0-9@-][A-Za-z0-9@._-]*")


def names() -> st.SearchStrategy[str]:
    def legal(name: str) -> bool:
        try:
            check_topic(name)
        except InvalidName:
            return False
        return True

    text = st.text(min_size=1, max_size=255) | st.text(string.printable + "@ä/..%=", min_size=1, max_size=255)
    return text.filter(legal)


@given(names())
def test_any_legal_name_is_one_safe_segment(name: str) -> None:
    *above, segment = table_ref("/tables", {}, "acme", "web", name, 2**63 - 1).url.split("/")
    assert above == ["", "tables", "acme", "web"]
    assert SEGMENT.fullmatch(segment) and len(segment) <= MAX_SEGMENT_BYTES


@given(names(), names())
def test_distinct_names_have_distinct_segments(one: str, other: str) -> None:
    assert (quoted(one, 179) == quoted(other, 179)) == (one == other)


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("orders", "orders"),
        ("orders.eu-1_x", "orders.eu-1_x"),
        ("a/b", "a@2fb"),
        ("...", "@2e.."),
        ("__audit", "@5f_audit"),  # a leading underscore would hide it from Spark
        ("a=1", "a@3d1"),  # and this would be a partition to it
        ("ä%", "@c3@a4@25"),
        ("a@2fb", "a@402fb"),
    ],
)
def test_names_that_need_quoting(name: str, segment: str) -> None:
    assert quoted(name, 179) == segment


def test_long_names_that_begin_alike_differ() -> None:
    one, other = (quoted("ü" * 254 + end, 179) for end in "ab")
    assert one != other and len(one) == len(other) == 179


@pytest.mark.parametrize(
    ("root", "url", "folder"),
    [
        ("/var/tables/", "/var/tables/t/n/a-3", "/var/tables/t/n/a-3"),
        ("file:///var/my%20tables", "file:///var/my%20tables/t/n/a-3", "/var/my tables/t/n/a-3"),
        ("s3://bucket/x/", "s3://bucket/x/t/n/a-3", None),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x/t/n/a-3", None),
    ],
)
def test_roots_are_folders_or_any_url(root: str, url: str, folder: str | None) -> None:
    ref = table_ref(root, {"key": "value"}, "t", "n", "a", 3)
    assert (ref.url, ref.options, ref.topic, ref.name) == (url, {"key": "value"}, 3, "a")
    assert local_folder(ref.url) == folder
