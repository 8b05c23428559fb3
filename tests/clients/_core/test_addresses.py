"""Addresses: how they are written, and in which order the servers of a cluster are tried."""

from __future__ import annotations

import pytest

from penstock.clients._core.address import Address, parse_address
from penstock.clients._core.addresses import Addresses


def test_how_an_address_is_written() -> None:
    assert parse_address("host", 5432) == Address("host", 5432)
    assert parse_address("host:1", 5432) == Address("host", 1)
    assert parse_address("[::1]:7", 5432) == Address("::1", 7)
    assert parse_address("[::1]", 5432) == Address("::1", 5432)
    assert str(Address("::1", 7)) == "[::1]:7"
    assert str(Address("host", 7)) == "host:7"


@pytest.mark.parametrize("wrong", ["", ":5", "host:", "host:0", "host:65536", "host:x", "::1", "a:b:1"])
def test_what_is_no_address(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        parse_address(wrong, 5432)


def test_at_least_one_is_needed() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Addresses([])


def test_a_server_that_failed_is_tried_last() -> None:
    addresses = Addresses.parse(["a", "b", "c"], 1)
    addresses.failed(Address("a", 1))
    assert [each.host for each in addresses.ordered()] == ["b", "c", "a"]
    addresses.failed(Address("c", 1))  # not the first choice, so nothing changes
    assert [each.host for each in addresses.ordered()] == ["b", "c", "a"]


def test_the_leader_comes_first_until_it_fails() -> None:
    addresses = Addresses.parse(["a:1", "b:1"], 1)
    addresses.redirect("c:1", source=Address("a", 1))
    assert addresses.ordered() == [("c", 1), ("a", 1), ("b", 1)]
    addresses.failed(Address("c", 1))
    assert addresses.ordered() == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("hint", [None, "nonsense:x", "a:1"])
def test_a_redirect_that_leads_nowhere_else(hint: str | None) -> None:
    addresses = Addresses.parse(["a:1", "b:1"], 1)
    addresses.redirect(hint, source=Address("a", 1))
    assert addresses.leader is None
    assert addresses.ordered() == [("b", 1), ("a", 1)]
