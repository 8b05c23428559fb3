"""Requests in flight on one connection, without a socket."""

from __future__ import annotations

from penstock.clients._core.requests import RequestBatch
from penstock.clients.blipmq.binding import BlipMQBinding
from penstock.clients.blipmq.event_buffer import EventBuffer
from penstock.clients.blipmq.requests import poll
from penstock.wire.blipmq import codec
from penstock.wire.blipmq.messages import Delivered


def test_an_eager_poll_does_not_wait_if_a_message_came_before_it_was_sent() -> None:
    binding = BlipMQBinding("key", 2, timeout=1.0)
    in_flight = binding.in_flight()
    buffer = EventBuffer(binding.state, "t", 1)
    buffer.put(Delivered(1, 1, b"t", b"early"))  # pushed on a new connection, for example
    batch = RequestBatch([poll(buffer, 1, eager=True)])
    in_flight.begin(batch, now=0.0)
    assert batch.is_set
    assert buffer.last_round is not None
    in_flight.feed(codec.encode_pong(buffer.last_round.ping), 0.5)  # is still accepted
    assert buffer.last_round.done
