"""Pages of the web whose name leads to this machine."""

from __future__ import annotations

import pytest

from penstock.doors.http.errors import HttpError
from penstock.doors.http.rebinding import refuse_rebound_name

HERE = "127.0.0.1:50123"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com",
        "evil.example.com:8080",
        "a.b",
        "EVIL.Example.COM.",
        "127.0.0.1.nip.io:80",
        "localhost.evil.com",
    ],
)
@pytest.mark.parametrize("peer", [HERE, "[::1]:50123"])
def test_names_that_a_page_could_have_are_refused_on_this_machine(host: str, peer: str) -> None:
    with pytest.raises(HttpError) as refused:
        refuse_rebound_name(host, peer)
    assert refused.value.code == "foreign_host"


@pytest.mark.parametrize(
    "host",
    ["", "localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "192.0.2.7", "penstock", "penstock:8080",
     "a.localhost", "box.local:1", "broker.internal", "penstock.default.svc.cluster.local"],
)  # fmt: skip
def test_addresses_and_local_names_are_taken(host: str) -> None:
    refuse_rebound_name(host, HERE)


def test_who_comes_from_another_machine_may_use_any_name() -> None:
    refuse_rebound_name("broker.example.org:8080", "192.0.2.7:50123")
