"""Requests in flight without a socket: in order and by number, late, lost, and refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clients._core.echo import Numbered, Ordered, Refused, echo, encode, store

from penstock.clients._core.errors import BadReply, TimedOut, Unsendable
from penstock.clients._core.requests import PENDING, RequestBatch, RequestSpec, whole

LOST = ConnectionResetError("gone")


def ordered(*specs: RequestSpec[Any]) -> RequestBatch:
    return RequestBatch(specs, b"".join(encode(spec, 0) for spec in specs))


# -- in order


def test_replies_belong_to_the_oldest_requests() -> None:
    requests = Ordered(10)
    first, second = ordered(echo("a"), echo("b")), ordered(echo("c"))
    assert requests.begin(first, 0.0) + requests.begin(second, 0.0) == b"a\nb\nc\n"
    assert (len(requests), requests.bytes_in_flight) == (3, 6)

    requests.feed(b"1\n2", 1.0)
    assert first.outcomes == ["1", PENDING]
    requests.feed(b"\n", 1.0)
    assert (first.is_set, first.outcomes, second.is_set) == (True, ["1", "2"], False)
    requests.feed(b"3\n", 1.0)
    assert (second.outcomes, len(requests), requests.bytes_in_flight) == (["3"], 0, 0)


def test_an_error_reply_is_the_outcome_of_its_request_alone() -> None:
    requests = Ordered(10)
    batch = ordered(echo("a"), echo("b"))
    requests.begin(batch, 0.0)
    requests.feed(b"!no\n2\n", 0.0)
    assert isinstance(batch.outcomes[0], Refused)
    assert batch.outcomes[1] == "2"


def test_what_decode_raises_is_the_outcome_even_if_it_is_a_bad_reply() -> None:
    """The message was one; only its content is of no use."""

    def decode(_reply: str) -> str:
        raise BadReply("not what was expected")

    requests = Ordered(10)
    batch = ordered(RequestSpec("a", decode))
    requests.begin(batch, 0.0)
    requests.feed(b"1\n", 0.0)
    assert isinstance(batch.outcomes[0], BadReply)
    assert batch.lost is None


@pytest.mark.parametrize("data", [b"1\n2\n", b"1\n2", b"?\n"], ids=["a reply too many", "a part of one", "no reply"])
def test_nonsense_ends_the_connection(data: bytes) -> None:
    requests = Ordered(10)
    requests.begin(ordered(echo("a")), 0.0)
    with pytest.raises(BadReply):
        requests.feed(data, 0.0)


def test_silence_ends_the_connection() -> None:
    requests = Ordered(10)
    assert requests.deadline() is None
    requests.begin(ordered(echo("a"), echo("b")), 100.0)
    assert requests.deadline() == 110.0
    requests.feed(b"1\n", 105.0)
    assert requests.deadline() == 115.0
    assert requests.expire(114.9) is None
    with pytest.raises(TimeoutError):
        requests.expire(115.0)


def test_what_is_lost_stays_pending() -> None:
    requests = Ordered(10)
    half, none = ordered(echo("a"), echo("b")), ordered(store("c"))
    requests.begin(half, 0.0)
    requests.begin(none, 0.0)
    requests.feed(b"1\n", 0.0)
    requests.lose(LOST)
    assert (half.outcomes, half.lost, half.is_set) == (["1", PENDING], LOST, True)
    assert (none.outcomes, none.lost, none.is_set) == ([PENDING], LOST, True)
    assert (len(requests), requests.deadline()) == (0, None)


def test_a_batch_may_read_its_replies_in_a_quicker_way() -> None:
    class Lengths(RequestBatch):
        def decode(self, at: int, frame: Any, message_of: Any) -> Any:  # noqa: ARG002
            return len(frame)

    requests = Ordered(10)
    batch = Lengths((), b"a\nb\n", count=2)
    assert requests.begin(batch, 0.0) == b"a\nb\n"
    requests.feed(b"one\nthree\n", 0.0)
    assert batch.outcomes == [3, 5]


def test_an_empty_batch_is_complete() -> None:
    requests = Ordered(10)
    batch = ordered()
    assert batch.is_set
    assert requests.begin(batch, 0.0) == b""
    assert len(requests) == 0


# -- by number


def test_replies_come_in_any_order() -> None:
    requests = Numbered(10)
    first, second = RequestBatch([echo("a"), echo("b")]), RequestBatch([echo("c")])
    assert requests.begin(first, 0.0) + requests.begin(second, 0.0) == b"1 a\n2 b\n3 c\n"
    requests.feed(b"3 z\n2 y\n", 0.0)
    assert (second.outcomes, first.outcomes) == (["z"], [PENDING, "y"])
    assert (len(requests), requests.bytes_in_flight) == (1, 8)
    requests.feed(b"1 x\n", 0.0)
    assert (first.is_set, first.outcomes, requests.bytes_in_flight) == (True, ["x", "y"], 0)


def test_what_cannot_be_sent_keeps_nothing_else_from_being_sent() -> None:
    requests = Numbered(10)
    batch = RequestBatch([echo("a"), echo("b\nc"), echo("d")])
    assert requests.begin(batch, 0.0) == b"1 a\n3 d\n"
    assert isinstance(batch.outcomes[1], Unsendable)
    requests.feed(b"1 a\n3 d\n", 0.0)
    assert (batch.outcomes[0], batch.outcomes[2], batch.is_set) == ("a", "d", True)
    alone = RequestBatch([echo("b\nc")])
    assert requests.begin(alone, 0.0) == b""
    assert alone.is_set


def test_a_reply_to_nothing_ends_the_connection() -> None:
    requests = Numbered(10)
    requests.begin(RequestBatch([echo("a")]), 0.0)
    with pytest.raises(BadReply, match="request 7"):
        requests.feed(b"7 x\n", 0.0)


def test_a_reply_that_is_none_is_the_outcome_and_ends_the_connection() -> None:
    requests = Numbered(10)
    batch = RequestBatch([echo("a")])
    requests.begin(batch, 0.0)
    with pytest.raises(BadReply):
        requests.feed(b"1 ?\n", 0.0)
    assert isinstance(batch.outcomes[0], BadReply)


def test_one_request_is_given_up_if_the_server_answers_others() -> None:
    requests = Numbered(10)
    slow, quick = RequestBatch([echo("slow", timeout=3)]), RequestBatch([echo("quick")])
    requests.begin(slow, 100.0)
    requests.begin(quick, 100.0)
    assert requests.deadline() == 103.0
    requests.feed(b"2 x\n", 101.0)
    assert requests.expire(103.0) is None
    assert isinstance(slow.outcomes[0], TimedOut)
    assert requests.deadline() is None
    requests.feed(b"1 too late\n", 104.0)
    assert requests.given_up == ["slow: 1 too late"]
    assert isinstance(slow.outcomes[0], TimedOut)


def test_requests_that_were_sent_together_have_their_own_timeouts() -> None:
    requests = Numbered(10)
    batch = RequestBatch([echo("a", timeout=3), echo("b", timeout=20), echo("c")])
    requests.begin(batch, 100.0)
    requests.feed(b"*event\n", 101.0)
    due = []
    while (deadline := requests.deadline()) is not None:
        due.append(deadline)
        requests.expire(deadline)
    assert due == [103.0, 110.0, 120.0]
    assert [type(outcome) for outcome in batch.outcomes] == [TimedOut] * 3
    assert batch.is_set


def test_a_silent_server_is_as_good_as_lost() -> None:
    requests = Numbered(10)
    batch = RequestBatch([echo("a")])
    requests.begin(batch, 100.0)
    with pytest.raises(TimeoutError):
        requests.expire(110.0)
    assert isinstance(batch.outcomes[0], TimedOut)


def test_a_server_that_pushes_is_probed_when_it_is_silent() -> None:
    requests = Numbered(10, keepalive=30)
    requests.feed(b"*event\n", 100.0)
    assert (requests.events, requests.deadline()) == (["event"], None)
    requests.subscribed = True
    assert requests.deadline() == 130.0
    assert requests.expire(129.0) is None
    probe = requests.expire(130.0)
    assert probe is not None
    requests.begin(probe, 130.0)
    assert requests.expire(131.0) is None  # one at a time
    with pytest.raises(TimeoutError):
        requests.expire(140.0)


def test_pushes_are_not_replies() -> None:
    requests = Numbered(10)
    batch = RequestBatch([echo("a")])
    requests.begin(batch, 0.0)
    requests.feed(b"*one\n1 x\n*two\n", 0.0)
    assert (batch.outcomes, requests.events, requests.arrived.is_set) == (["x"], ["one", "two"], True)


def test_batches_are_lost_with_the_connection() -> None:
    requests = Numbered(10)
    batch = RequestBatch([echo("a"), echo("b")])
    requests.begin(batch, 0.0)
    requests.feed(b"2 y\n", 0.0)
    requests.lose(LOST)
    assert (batch.outcomes, batch.lost, batch.is_set) == ([PENDING, "y"], LOST, True)
    assert (len(requests), requests.bytes_in_flight) == (0, 0)
    unknown = batch.settled(lambda reason: TimedOut(str(reason)))
    assert (type(unknown[0]), unknown[1]) == (TimedOut, "y")


def test_specs_tell_their_names() -> None:
    assert RequestSpec(5, whole).name == "int"
