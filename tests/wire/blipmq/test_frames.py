"""Frames: any split of the stream gives the same, and a bad header stops everything behind it."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.blipmq import codec, frames
from penstock.wire.blipmq.errors import EmptyFrame, FrameError, FrameTooLarge, FrameTooShort, UnknownFrameType
from penstock.wire.blipmq.frames import DELIVER, MAX_FRAME, MAX_PAYLOAD, POLL, Frame, Framer

u64 = st.integers(0, 0xFFFF_FFFF_FFFF_FFFF)
any_frame = st.tuples(st.integers(1, POLL), u64, st.binary(max_size=40))


def stream_of(found: list[Frame]) -> bytes:
    return b"".join(frames.encode_frame(*frame) for frame in found)


def feed_in_pieces(stream: bytes, cuts: list[int], last_type: int = POLL) -> tuple[list[Frame], Framer]:
    framer = Framer(last_type)
    found = []
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    for start, end in pairwise(edges):
        found += framer.feed(stream[start:end])
    return found, framer


# -- the framer


@given(st.lists(any_frame, max_size=8), st.lists(st.integers(0, 600), max_size=12))
def test_any_split_gives_the_same_frames(sent: list[Frame], cuts: list[int]) -> None:
    found, framer = feed_in_pieces(stream_of(sent), cuts)
    assert found == sent
    assert framer.buffered == 0
    assert framer.error is None


@pytest.mark.parametrize("kind", [0, 10, 255])
def test_an_unknown_type_among_many_frames_of_one_length(kind: int) -> None:
    good = [(frames.POLL, number, bytes(8)) for number in range(20)]
    framer = Framer()
    assert framer.feed(stream_of([*good[:15], (kind, 15, bytes(8)), *good[16:]])) == good[:15]
    assert isinstance(framer.error, UnknownFrameType)


@given(st.integers(6, 40), st.integers(0, 9), st.data())
def test_many_frames_of_one_length_are_what_they_are_one_by_one(count: int, size: int, data: st.DataObject) -> None:
    """Also if one of them is not as it should be, or the last one is not there yet."""
    sent = [(data.draw(st.integers(1, 9)), number, bytes((number,)) * size) for number in range(count)]
    stream = bytearray(stream_of(sent))
    at = data.draw(st.integers(0, len(stream) - 1))
    if data.draw(st.booleans()):
        stream[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from((len(stream), at)))
    together, of_all = feed_in_pieces(bytes(stream[:cut]), [])
    apart, of_each = feed_in_pieces(bytes(stream[:cut]), list(range(cut)))
    assert together == apart
    assert (type(of_all.error), str(of_all.error)) == (type(of_each.error), str(of_each.error))
    assert of_all.buffered == of_each.buffered


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=8))
def test_junk_gives_the_same_result_in_any_split(junk: bytes, cuts: list[int]) -> None:
    # Small lengths make whole frames likely.
    junk = junk.replace(b"\xff", b"\0\0\0\x0a")
    whole, of_whole = feed_in_pieces(junk, [])
    found, framer = feed_in_pieces(junk, cuts)
    assert found == whole
    assert (type(framer.error), str(framer.error)) == (type(of_whole.error), str(of_whole.error))
    assert framer.buffered == of_whole.buffered


BAD_HEADS: dict[bytes, type[FrameError]] = {
    bytes.fromhex("00000000"): EmptyFrame,
    bytes.fromhex("01000001"): FrameTooLarge,
    bytes.fromhex("ffffffff"): FrameTooLarge,
    bytes.fromhex("00000001"): FrameTooShort,
    bytes.fromhex("00000008"): FrameTooShort,
}


@given(
    st.lists(any_frame, max_size=4),
    st.sampled_from(sorted(BAD_HEADS)),
    st.binary(max_size=20),
    st.lists(st.integers(0, 200), max_size=8),
)
def test_frames_before_a_bad_length_are_kept_in_any_split(
    sent: list[Frame], head: bytes, rest: bytes, cuts: list[int]
) -> None:
    found, framer = feed_in_pieces(stream_of(sent) + head + rest, cuts)
    assert found == sent
    assert isinstance(framer.error, BAD_HEADS[head])
    assert framer.buffered == 0
    assert framer.feed(codec.encode_ping(1)) == []


@pytest.mark.parametrize("head", sorted(BAD_HEADS))
def test_gap_15_bad_frames_in_the_order_of_the_checks(head: bytes) -> None:
    """A bad length is known with its fourth byte, whatever follows; a bad type only with the last byte of its frame."""
    framer = Framer()
    framer.feed(head[:3])
    assert framer.error is None
    framer.feed(head[3:])
    error = framer.error  # a name of its own, for mypy has narrowed the attribute
    assert isinstance(error, BAD_HEADS[head])


@pytest.mark.parametrize("kind", [0, 0x0A, 0x0B, 0xFF])
def test_gap_15_a_type_is_judged_when_its_frame_is_whole(kind: int) -> None:
    framer = Framer()
    bad = frames.encode_frame(kind, 1, b"abc")
    assert framer.feed(codec.encode_ping(7) + bad[:-1]) == [(frames.PING, 7, b"")]
    assert framer.error is None
    assert framer.feed(bad[-1:] + codec.encode_ping(8)) == []
    assert isinstance(framer.error, UnknownFrameType)


def test_only_a_client_takes_deliver() -> None:
    data = codec.encode_deliver(1, 1, b"t", b"v")
    assert Framer(DELIVER).feed(data) == [(DELIVER, 1, data[13:])]
    refused = Framer()
    assert refused.feed(data) == []
    assert isinstance(refused.error, UnknownFrameType)


def test_the_largest_frame_is_accepted() -> None:
    data = frames.encode_frame(frames.PUBLISH, 1, bytes(MAX_PAYLOAD))
    assert data[:4] == MAX_FRAME.to_bytes(4, "big")
    framer = Framer()
    assert framer.feed(data[:100_000]) == []
    assert framer.buffered == 100_000
    ((kind, _, payload),) = framer.feed(data[100_000:])
    assert (kind, len(payload), framer.buffered) == (frames.PUBLISH, MAX_PAYLOAD, 0)


def test_gap_19_a_length_alone_reserves_nothing() -> None:
    framer = Framer()
    tracemalloc.start()
    try:
        framer.feed(MAX_FRAME.to_bytes(4, "big") + b"\3" + bytes(8))
        assert tracemalloc.get_traced_memory()[1] < 65536
    finally:
        tracemalloc.stop()
    assert framer.buffered == 13


def test_one_byte_at_a_time() -> None:
    stream = codec.encode_hello(1, 1) + codec.encode_ping(2)
    framer = Framer()
    found = [frame for byte in stream for frame in framer.feed(bytes([byte]))]
    assert found == [(1, 1, b"\0\1"), (7, 2, b"")]
