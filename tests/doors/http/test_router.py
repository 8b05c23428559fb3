"""The table of routes: paths, parameters, bodies, and requests that other sites' pages make."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.http.peer import Peer

from penstock.broker import errors as broker_errors
from penstock.doors.http.errors import STATUS, code_of, error_reply
from penstock.doors.http.replies import Outcome, json_reply
from penstock.doors.http.router import Request, Route, Router
from penstock.log import errors as log_errors


class Query(msgspec.Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=10)] = 5
    follow: bool = False
    header: list[str] = []


class Body(msgspec.Struct, forbid_unknown_fields=True):
    value: int


def show(request: Request) -> Outcome:
    body = msgspec.to_builtins(request.body) if isinstance(request.body, Body) else None
    return json_reply(
        {
            "names": dict(request.names),
            "query": msgspec.to_builtins(request.query),
            "body": body,
            "scope": [request.tenant, request.namespace],
        }
    )


ROUTES = (
    Route("GET", "/v1/things", show, "All things."),
    Route("GET", "/v1/things/{thing}", show, "One thing.", query=Query),
    Route("POST", "/v1/things/{thing}", show, "Change one thing.", body=Body),
    Route("GET", "/v1/things/{thing}/parts/{part}", show, "One part."),
    Route("GET", "/v1/things/special", show, "A special thing."),
)


@pytest.fixture(scope="module")
def peer() -> Peer:
    fixture = BrokerFixture()
    return Peer(fixture, Router(fixture.broker, ROUTES))


def asked(peer: Peer, path: str) -> Any:
    answer = peer.ask("GET", path)
    assert answer.status == 200, answer.body
    return answer.json


def test_names_in_paths_are_decoded(peer: Peer) -> None:
    assert asked(peer, "/v1/things/a%2Fb/parts/%C3%A9")["names"] == {"thing": "a/b", "part": "é"}
    assert asked(peer, "/v1/things/special")["names"] == {}
    assert peer.ask("GET", "/v1/things/%ff").status == 400


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/things/", "/v1/things/a/parts", "/v2/things", "/v1/things/a/parts/"])
def test_other_paths_are_not_found(peer: Peer, path: str) -> None:
    answer = peer.ask("GET", path)
    assert (answer.status, answer.code) == (404, "not_found")


def test_other_methods_are_refused_with_those_that_there_are(peer: Peer) -> None:
    answer = peer.ask("DELETE", "/v1/things/a")
    assert answer.status == 405 and answer.headers["allow"] == "GET, POST, HEAD"
    assert peer.ask("HEAD", "/v1/things/a").status == 200


def test_parameters_have_their_types_and_bounds(peer: Peer) -> None:
    found = asked(peer, "/v1/things/a?limit=7&follow=true&header=a&header=b&tenant=t&namespace=n")
    assert found["query"] == {"limit": 7, "follow": True, "header": ["a", "b"]}
    assert found["scope"] == ["t", "n"]
    assert asked(peer, "/v1/things/a")["query"] == {"limit": 5, "follow": False, "header": []}


@pytest.mark.parametrize("query", ["limit=11", "limit=x", "limit=1&limit=2", "hat=1", "limit=%ff", "limit="])
def test_parameters_that_do_not_fit_are_refused(peer: Peer, query: str) -> None:
    answer = peer.ask("GET", f"/v1/things/a?{query}")
    assert (answer.status, answer.code) == (400, "invalid_request")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"value": "x"}', b'{"value": 1, "hat": 2}', b'{"\xff": 1}'])
def test_bodies_that_do_not_fit_are_refused(peer: Peer, body: bytes) -> None:
    answer = peer.ask("POST", "/v1/things/a", body)
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert peer.ask("POST", "/v1/things/a", b'{"value": 1}').json["body"] == {"value": 1}


def test_a_change_is_not_taken_from_another_sites_page(peer: Peer) -> None:
    body = b'{"value": 1}'
    assert peer.ask("POST", "/v1/things/a", body, origin="http://x").status == 200
    for origin in ("http://evil", "null", "http://x.evil", "http://x:81", "garbage"):
        answer = peer.ask("POST", "/v1/things/a", body, origin=origin)
        assert (answer.status, answer.code) == (403, "foreign_origin")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = peer.ask("POST", "/v1/things/a", body, content_type=kind)
        assert (answer.status, answer.code) == (415, "json_only")
    assert peer.ask("POST", "/v1/things/a", body, content_type="text/plain", x_requested_with="x").status == 200
    assert peer.ask("POST", "/v1/things/a", body, content_type="Application/JSON; charset=utf-8").status == 200
    assert "access-control-allow-origin" not in peer.ask("GET", "/v1/things", origin="http://evil").headers


def test_a_page_that_rebinds_its_name_to_this_machine_is_refused_while_everybody_is_administrator(peer: Peer) -> None:
    for method, body in (("GET", b""), ("POST", b'{"value": 1}')):
        answer = peer.ask(method, "/v1/things/a", body, host="evil.example.com", origin="http://evil.example.com")
        assert (answer.status, answer.code) == (403, "foreign_host")


def test_every_error_has_a_status_and_a_code() -> None:
    assert code_of(broker_errors.TopicNotFound) == "topic_not_found"
    for module in (broker_errors, log_errors):
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, Exception):
                assert any(base in STATUS for base in kind.__mro__), kind
                if kind.__name__.endswith("NotFound"):
                    assert next(STATUS[base] for base in kind.__mro__ if base in STATUS) == 404, kind
    reply = error_reply(broker_errors.TopicNotFound("t" * 10_000))
    assert reply.status == 404 and len(reply.body) < 3000
