"""Frames: whatever way the bytes arrive, the same payloads come out, and a bad length stops everything behind it."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.conformance.vectors import vectors
from penstock.wire.rustlog.codec.dialect import BINARY, JSON, detect
from penstock.wire.rustlog.errors import FrameTooLarge, ReplyTooLarge, ZeroLengthFrame
from penstock.wire.rustlog.frames import MAX_FRAME, Framer, frame
from penstock.wire.rustlog.messages import MetricsFetch, Ping


def feed_in_pieces(stream: bytes, cuts: list[int]) -> tuple[list[bytes], Framer]:
    framer = Framer()
    payloads = []
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    for start, end in pairwise(edges):
        payloads += framer.feed(stream[start:end])
    return payloads, framer


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=10), st.lists(st.integers(0, 500), max_size=12))
def test_any_split_gives_the_same_payloads(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, payloads))

    found, framer = feed_in_pieces(stream, cuts)

    assert found == payloads
    assert framer.buffered == 0
    assert framer.error is None


@given(
    st.lists(st.binary(min_size=1, max_size=20), max_size=4),
    st.sampled_from([0, MAX_FRAME + 1, 0xFFFFFFFF]),
    st.binary(max_size=20),
    st.lists(st.integers(0, 200), max_size=8),
)
def test_payloads_before_a_bad_length_are_kept_in_any_split(
    payloads: list[bytes], length: int, rest: bytes, cuts: list[int]
) -> None:
    stream = b"".join(map(frame, payloads)) + length.to_bytes(4, "big") + rest

    found, framer = feed_in_pieces(stream, cuts)

    assert found == payloads
    assert isinstance(framer.error, FrameTooLarge if length else ZeroLengthFrame)
    assert framer.buffered == 0
    assert framer.feed(frame(b"later")) == []


def test_a_bad_length_is_known_with_its_fourth_byte() -> None:
    framer = Framer()
    framer.feed(b"\xff\xff\xff")
    assert framer.error is None
    framer.feed(b"\xff")
    assert framer.error is not None
    assert framer.error.closes


def test_one_byte_at_a_time() -> None:
    stream = frame(b"abc") + frame(b"d")
    framer = Framer()
    assert [payload for byte in stream for payload in framer.feed(bytes([byte]))] == [b"abc", b"d"]


def test_buffered_counts_the_bytes_of_the_open_frame() -> None:
    framer = Framer()
    assert framer.feed(frame(b"abc") + frame(b"defg")[:6]) == [b"abc"]
    assert framer.buffered == 6


def test_a_length_alone_reserves_nothing() -> None:
    tracemalloc.start()
    try:
        framers = [Framer() for _ in range(20)]
        for framer in framers:
            framer.feed(MAX_FRAME.to_bytes(4, "big") + b"x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_a_full_frame_in_small_pieces_is_copied_a_fixed_number_of_times() -> None:
    """Linear work: the buffer is turned into payloads once, not with every piece."""
    stream = frame(bytes(MAX_FRAME))
    cuts: list[int] = []

    class Counting(Framer):
        def _cut(self, data: bytes) -> list[bytes]:
            cuts.append(len(data))
            return super()._cut(data)

    framer = Counting()
    found = [payload for at in range(0, len(stream), 4096) for payload in framer.feed(stream[at : at + 4096])]
    assert [len(payload) for payload in found] == [MAX_FRAME]
    assert sum(cuts) <= len(stream) + 2 * 4096


def test_decision_01_the_length_is_that_of_the_bytes() -> None:
    """The document's sample says 74 where its payload has 78 bytes."""
    sample = b'{"type":"Produce","topic":"logs","partition":0,"records":["SGVsbG8gV29ybGQ="]}'
    assert len(sample) == 78
    assert frame(sample)[:4] == bytes.fromhex("0000004e")

    framer = Framer()
    assert framer.feed(bytes.fromhex("0000004a") + sample) == [sample[:74]]  # what follows is the next length
    assert framer.error is not None  # `="]}` is no length


def test_decision_29_the_limit_is_10_mib() -> None:
    framer = Framer()
    assert framer.feed(frame(bytes(10_485_760))) == [bytes(10_485_760)]
    framer.feed((10_485_761).to_bytes(4, "big"))
    assert str(framer.error) == "frame too large: 10485761 bytes (max: 10485760)"
    with pytest.raises(ReplyTooLarge):
        frame(bytes(10_485_761))
    with pytest.raises(ReplyTooLarge):
        frame(b"")


# -- the two dialects in one stream of frames


def test_every_vector_shows_its_dialect() -> None:
    for vector in vectors("rustlog"):
        if vector.kind == "request" and vector.expect is not None and "frames" not in vector.expect:
            assert detect(vector.data[4:]) is {"binary": BINARY, "json": JSON}[vector.dialect], vector.name


@pytest.mark.parametrize("space", [b" ", b"\t", b"\r", b"\n", b"\t\t \n"])
def test_white_space_before_a_brace_is_json(space: bytes) -> None:
    payload = space + b'{"type":"Ping"}'
    assert detect(payload) is JSON
    assert JSON.decode_request(payload) == Ping()


@pytest.mark.parametrize("payload", [b"\t", b"\t\t", b"\t junk", b"\t\x01{"])
def test_a_tab_without_a_brace_is_a_binary_metrics_request(payload: bytes) -> None:
    assert detect(payload) is BINARY
    assert BINARY.decode_request(payload) == MetricsFetch()


def test_every_first_byte_has_one_dialect() -> None:
    json_bytes = {first for first in range(256) if detect(bytes([first])) is JSON}
    assert json_bytes == {0x0A, 0x0D, *range(0x20, 0x7F)}
