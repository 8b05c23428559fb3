"""The callers of the Flight door, and for how long they are remembered."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from penstock.broker.names import Scope
from penstock.broker.security.access import Identity
from penstock.workers.flight import callers as flight_callers
from penstock.workers.flight.callers import (
    CACHE_SECONDS,
    TOKEN_SECONDS,
    UNUSED_SECONDS,
    Callers,
    Unauthenticated,
    plain_peer,
)
from penstock.workers.flight.rpc_messages import LoggedIn, Login

PEER = "ipv4:10.0.0.1:5000"


class Broker:
    """Knows ann's password and one key."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[Login] = []
        self.callers = Callers(self.prove, lambda: self.now)

    def prove(self, login: Login) -> LoggedIn:
        self.asked.append(login)
        if (login.user, login.secret) == ("ann", "right"):
            return LoggedIn(Identity("user:ann", login.tenant, login.peer, 7))
        if (login.user, login.secret) == (None, "the key"):
            return LoggedIn(Identity("key:1", "acme", login.peer))
        return LoggedIn(None, "no")

    def call(self, authorization: str | bytes = "", peer: str = PEER, **headers: str) -> Any:
        shown: dict[str, list[str | bytes]] = {name.replace("_", "-"): [text] for name, text in headers.items()}
        if authorization:
            shown["authorization"] = [authorization]
        return self.callers.caller(shown, peer)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


ANN = basic("ann", "right")


def test_who_shows_nothing_is_anonymous_and_nobody_is_asked() -> None:
    broker = Broker()
    caller = broker.call(x_penstock_tenant="acme")
    assert caller.anonymous and caller.identity == Identity("anonymous", None, "10.0.0.1:5000")
    assert caller.scope == Scope("acme", "default") and broker.asked == []


def test_a_user_is_of_the_tenant_that_is_named_and_a_key_of_its_own() -> None:
    broker = Broker()
    assert broker.call(ANN).identity == Identity("user:ann", "default", "10.0.0.1:5000", 7)
    assert broker.call(ANN, x_penstock_tenant="acme").identity.tenant == "acme"
    assert broker.call("bearer the key").scope == Scope("acme", "default")
    assert broker.call("Bearer the key", x_penstock_tenant="other").scope.tenant == "other"  # where it may do nothing
    assert broker.call(ANN, x_penstock_namespace="n").scope.namespace == "n"


def test_who_was_proved_is_remembered_for_a_while_and_only_at_the_same_host() -> None:
    broker = Broker()
    for number in range(3):
        assert broker.call(ANN, f"ipv4:10.0.0.1:{number}").identity.peer == f"10.0.0.1:{number}"
    assert len(broker.asked) == 1
    broker.call(ANN, "ipv4:10.0.0.2:1")
    assert len(broker.asked) == 2
    broker.now = CACHE_SECONDS + 1
    broker.call(ANN)
    assert len(broker.asked) == 3


def test_a_wrong_password_is_asked_about_each_time() -> None:
    broker = Broker()
    for _ in range(2):
        with pytest.raises(Unauthenticated, match="no"):
            broker.call(basic("ann", "wrong"))
    assert len(broker.asked) == 2
    with pytest.raises(Unauthenticated):
        broker.call(basic("", "the key"))  # a key is no password of nobody


@pytest.mark.parametrize("header", ["Basic", "Basic !", "Basic YQ==", "Bearer", "Token x", "x", b"\xff"])
def test_a_header_that_means_nothing(header: str | bytes) -> None:
    broker = Broker()
    with pytest.raises(Unauthenticated, match="header"):
        broker.call(header)
    with pytest.raises(Unauthenticated, match="more than once"):
        broker.callers.caller({"authorization": [ANN, ANN]}, PEER)
    with pytest.raises(Unauthenticated, match="too long"):
        broker.call("Bearer " + "x" * 10_000)
    assert broker.asked == []


def test_a_token_is_proved_when_it_is_used_and_ends() -> None:
    broker = Broker()
    token = "Bearer " + broker.callers.issue_token({"authorization": [ANN]})
    assert broker.asked == []
    for _ in range(2):
        assert broker.call(token).identity.name == "user:ann"
    assert len(broker.asked) == 1
    broker.now = CACHE_SECONDS + 1
    assert broker.call(token).identity.name == "user:ann" and len(broker.asked) == 1  # it stands for itself
    broker.now = TOKEN_SECONDS + 1
    with pytest.raises(Unauthenticated, match="log in again"):
        broker.call(token)
    unused = "Bearer " + broker.callers.issue_token({"authorization": [ANN]})
    broker.now += UNUSED_SECONDS + 1
    with pytest.raises(Unauthenticated, match="log in again"):
        broker.call(unused)
    assert len(broker.asked) == 1


def test_a_token_of_a_wrong_password_is_worth_nothing() -> None:
    broker = Broker()
    token = "Bearer " + broker.callers.issue_token({"authorization": [basic("ann", "wrong")]})
    with pytest.raises(Unauthenticated, match="no"):
        broker.call(token)
    for headers in ({}, {"authorization": ["Bearer the key"]}):
        with pytest.raises(Unauthenticated, match="a user and a password"):
            broker.callers.issue_token(headers)


def test_tokens_that_nobody_uses_push_out_none_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_callers, "MAX_CACHED", 10)
    broker = Broker()
    token = "Bearer " + broker.callers.issue_token({"authorization": [ANN]})
    broker.call(token)
    for number in range(50):
        broker.callers.issue_token({"authorization": [basic(f"user {number}", "x")]})
    assert broker.call(token).identity.name == "user:ann"
    assert len(broker.callers._unused) == 10
    for number in range(50):
        broker.call(ANN, f"ipv4:10.0.1.{number}:1")
    assert len(broker.callers._known) == 10


def test_peers_are_said_as_at_the_other_doors() -> None:
    assert plain_peer("ipv4:127.0.0.1:80") == "127.0.0.1:80"
    assert plain_peer("ipv6:%5B::1%5D:80") == "[::1]:80"
    assert plain_peer("unix:/x") == "unix:/x"
