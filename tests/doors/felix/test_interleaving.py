"""Any number of streams, their frames in any pieces and in any order among each other: every stream is answered in its
own order, and the log has what was published, in the order of each stream."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.felix.peer import Binary, Peer, auth, batch, frame, publish, publish_batch, values
from tests.effort import scaled

TOPICS = ("a", "b")


class Script:
    """The requests of one stream, the expected replies, and the expected contents of the log."""

    def __init__(self, number: int, speaks: str, parts: list[tuple[str, str, int, bool]]) -> None:
        self.uni = speaks == "uni"
        self.data = frame(auth()) if speaks == "original" else b""
        self.replies: list[Any] = [("auth_ok", None)] if speaks == "original" else []
        self.stored: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
        for at, (form, topic, count, acked) in enumerate(parts):
            most = 1 if form == "single" else count
            payloads = [b"%d-%d-%d" % (number, at, each) for each in range(most)]
            self._add(form, topic, payloads, at, acked, speaks)

    def _add(self, form: str, topic: str, payloads: list[bytes], at: int, acked: bool, speaks: str) -> None:
        mode: dict[str, Any] = {} if acked else {"ack": "none"}
        reply: Any = ("publish_ok" if speaks == "original" else "ok", at)
        if form == "bad":
            self.data += frame(b"[]")
            self.replies.append(("error", None))
            return
        if form == "single":
            self.data += frame(publish(payloads[0], at, stream=topic, **mode))
        elif form == "json":
            self.data += frame(publish_batch(payloads, at, stream=topic, **mode))
        elif speaks == "original" and acked:
            self.data += batch(*payloads, stream=topic, request_id=at)
            reply = ("ack", at)
        else:
            self.data += batch(*payloads, stream=topic)
            acked = False
        self.stored[topic] += payloads
        if acked and not self.uni:
            self.replies.append(reply)


def shape(reply: Any) -> Any:
    if isinstance(reply, Binary):
        assert (reply.flags, reply.payload[0]) == (0x0010, 0)
        return "ack", int.from_bytes(reply.payload[1:9])
    return reply["type"], reply.get("request_id")


parts = st.tuples(
    st.sampled_from(["single", "json", "binary", "bad"]), st.sampled_from(TOPICS), st.integers(0, 3), st.booleans()
)
scripts = st.lists(
    st.tuples(st.sampled_from(["document", "original", "uni"]), st.lists(parts, max_size=8)), min_size=1, max_size=4
)


@settings(max_examples=scaled(60), deadline=None)
@given(scripts, st.data())
def test_streams_do_not_disturb_each_other(asked: list[tuple[str, list[Any]]], data: st.DataObject) -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    made = [
        Script(at, speaks, [part for part in parts if speaks != "uni" or part[0] != "bad"])
        for at, (speaks, parts) in enumerate(asked)
    ]
    streams = [peer.stream(uni=script.uni) for script in made]
    left = [script.data for script in made]
    while any(left):
        at = data.draw(st.sampled_from([at for at, rest in enumerate(left) if rest]))
        size = data.draw(st.integers(1, len(left[at])))
        streams[at].send_all(left[at][:size])
        left[at] = left[at][size:]
        if data.draw(st.booleans()):
            fixture.commit()
    for stream in streams:
        stream.end()
    fixture.commit()
    for script, stream in zip(made, streams, strict=True):
        assert [shape(reply) for reply in stream.replies()] == script.replies
        assert stream.finished
        assert stream.session.held_bytes == 0
    for topic in TOPICS:
        expected = [script.stored[topic] for script in made]
        found = values(fixture, topic) if any(expected) else []
        assert sorted(found) == sorted(value for each in expected for value in each)
        for own in expected:
            of_this = set(own)
            assert [value for value in found if value in of_this] == own


@settings(max_examples=scaled(40), deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=6), st.booleans(), st.booleans())
def test_rubbish_disturbs_nobody_else(rubbish: list[bytes], framed: bool, uni: bool) -> None:
    fixture = BrokerFixture()
    peer, other = Peer(fixture), Peer(fixture)
    for speaks in (frame(auth()), b""):
        stream = peer.stream(uni=uni)
        stream.send_all(speaks)
        for at, piece in enumerate(rubbish):
            stream.send_all(frame(piece, at % 2) if framed else piece)
        stream.end()
        fixture.commit()
        assert stream.finished or peer.line.dead
        if peer.line.dead:
            break
    assert not (framed and peer.line.dead)
    assert other.stream().ask(publish(b"x")) == {"type": "ok"}
