"""Requests in flight on one connection, without a socket."""

from __future__ import annotations

import pytest

from penstock.clients._core.requests import RequestBatch
from penstock.clients.kimberlite import BadReply, TimedOut, requests
from penstock.clients.kimberlite.binding import KimberliteBinding, KimberliteRequests
from penstock.clients.kimberlite.event_buffer import EventBuffer
from penstock.clients.kimberlite.version import find_version
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.dialects import dialect
from penstock.wire.kimberlite.frames import frame


def in_flight_requests(timeout: float) -> KimberliteRequests:
    return KimberliteBinding(find_version("5b"), tenant=1, token=None, timeout=timeout).in_flight()


def test_a_subscription_that_is_made_too_late() -> None:
    """Nobody would ever end it, or give credits: the connection has to go."""
    buffer = EventBuffer(1, 0, 4, None)
    in_flight = in_flight_requests(timeout=1.0)
    batch = RequestBatch([requests.subscription(buffer)])
    in_flight.begin(batch, now=0.0)
    in_flight.heard = 0.5  # something else has come
    in_flight.expire(2.0)
    assert isinstance(batch.outcomes[0], TimedOut)
    late = frame(dialect("5b").write_response(1, m.SubscribeResponse(9, 0, 4)), 5)
    with pytest.raises(BadReply, match="nobody waited"):
        in_flight.feed(late, 3.0)
    assert buffer.subscription_id is None
    assert isinstance(batch.outcomes[0], TimedOut)


def test_each_request_of_a_pipeline_has_a_timeout_of_its_own() -> None:
    in_flight = in_flight_requests(timeout=3.0)
    batch = RequestBatch([requests.sync(timeout=1.0), requests.sync(), requests.sync(timeout=5.0)])
    in_flight.begin(batch, now=0.0)
    in_flight.heard = 0.5  # something else has come
    given_up = []
    for now in (1.0, 3.0, 5.0):
        assert in_flight.deadline() == now
        in_flight.expire(now)
        given_up.append([isinstance(outcome, TimedOut) for outcome in batch.outcomes].count(True))
    assert given_up == [1, 2, 3]
    assert batch.is_set
