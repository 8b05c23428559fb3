"""Frames: the document's examples as printed, any split of the stream, bad headers, compression."""

from __future__ import annotations

import gzip
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.flymq import errors, messages
from penstock.wire.flymq import frames as framing
from penstock.wire.flymq.codec import replies, requests
from penstock.wire.flymq.errors import (
    BadMagic,
    BadVersion,
    FrameError,
    FrameTooLarge,
    MalformedPayload,
    PayloadTooLarge,
    UnsupportedCompression,
)
from penstock.wire.flymq.frames import Frame, Framer
from penstock.wire.flymq.opcodes import MAX_PAYLOAD

# The document's example of a PRODUCE as it is printed: the header counts 19 bytes, and 23 follow.
PRINTED_PRODUCE = bytes.fromhex(
    "AF 01 01 01 00 00 00 13"
    "00 04 74 65 73 74 00 00 00 00 00 00 00 05 68 65 6C 6C 6F FF FF FF FF"
)  # fmt: skip
# Its reply as it is printed.
PRINTED_REPLY = bytes.fromhex(
    "AF 01 01 01 00 00 00 22"
    "00 04 74 65 73 74 00 00 00 00 00 00 00 00 00 00 00 2A 00 00 01 8D 5A 3B 2C 00 FF FF FF FF 00 00 00 05"
)  # fmt: skip
COUNTED_PRODUCE = bytes.fromhex(
    "AF 01 01 01 00 00 00 17"
    "00 04 74 65 73 74 00 00 00 00 00 00 00 05 68 65 6C 6C 6F FF FF FF FF"
)  # fmt: skip
LIST_TOPICS = bytes.fromhex("AF 01 08 01 00 00 00 00")
SHORT = Frame(1, 1, PRINTED_PRODUCE[8:27])
LISTING = Frame(8, 1, b"")

any_frame = st.builds(Frame, st.integers(0, 255), st.integers(0, 255), st.binary(max_size=40))


def stream_of(frames: list[Frame]) -> bytes:
    return b"".join(framing.frame(f.opcode, f.payload, f.flags) for f in frames)


def feed_in_pieces(stream: bytes, cuts: list[int], framer: Framer | None = None) -> tuple[list[Frame], Framer]:
    framer = framer or Framer()
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    found = []
    for start, end in pairwise(edges):
        found += framer.feed(stream[start:end])
    return found, framer


# -- the stream


@given(st.lists(any_frame, max_size=8), st.lists(st.integers(0), max_size=8))
def test_any_split_gives_the_same_frames(frames: list[Frame], cuts: list[int]) -> None:
    found, framer = feed_in_pieces(stream_of(frames), cuts)
    assert (found, framer.error, framer.buffered) == (frames, None, 0)


@given(st.lists(any_frame, max_size=4), st.binary(max_size=30), st.lists(st.integers(0), max_size=8))
def test_any_bytes_in_any_split_end_alike(frames: list[Frame], junk: bytes, cuts: list[int]) -> None:
    stream = stream_of(frames) + junk
    whole = Framer()
    expected = whole.feed(stream)
    found, framer = feed_in_pieces(stream, cuts)
    assert found == expected
    assert (type(framer.error), str(framer.error)) == (type(whole.error), str(whole.error))
    assert framer.error is not None or framer.buffered == whole.buffered


def test_a_frame_is_named() -> None:
    [frame] = Framer().feed(bytes.fromhex("AF 01 07 03 00 00 00 02 DE AD"))
    assert (frame.opcode, frame.flags, frame.payload) == (7, 3, b"\xde\xad")
    assert isinstance(frame, Frame)


@pytest.mark.parametrize(
    ("header", "known_after", "error", "text"),
    [
        ("AE 01 01 01 00 00 00 00", 1, BadMagic, "invalid magic byte: 0xAE"),
        ("AF 02 01 01 00 00 00 00", 2, BadVersion, "unsupported protocol version: 2"),
        ("AF 01 01 01 02 00 00 01", 8, FrameTooLarge, "message too large: 33554433 bytes (max: 33554432)"),
        ("AF 01 01 01 FF FF FF FF", 8, FrameTooLarge, "message too large: 4294967295 bytes (max: 33554432)"),
    ],
)
def test_a_bad_header_is_known_at_once_and_ends_the_stream(
    header: str, known_after: int, error: type[FrameError], text: str
) -> None:
    stream = LIST_TOPICS + bytes.fromhex(header)
    framer = Framer()
    assert framer.feed(stream[: 8 + known_after - 1]) == [LISTING]
    assert not framer.error
    assert framer.feed(stream[8 + known_after - 1 : 8 + known_after]) == []
    assert isinstance(framer.error, error)
    assert str(framer.error) == text
    assert framer.buffered <= 8
    assert framer.feed(LIST_TOPICS) == []

    whole = Framer()
    assert whole.feed(stream + LIST_TOPICS) == [LISTING]  # what came before is still handed out
    assert type(whole.error) is error


def test_the_largest_frame_is_accepted_and_a_length_alone_reserves_nothing() -> None:
    header = bytes.fromhex("AF 01 01 01 02 00 00 00")
    framer = Framer()
    tracemalloc.start()
    try:
        assert framer.feed(header) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert framer.error is None
    assert peak < 100_000
    for _ in range(31):
        assert framer.feed(bytes(1 << 20)) == []
    assert framer.buffered == (31 << 20) + 8
    [frame] = framer.feed(bytes(1 << 20))
    assert len(frame.payload) == MAX_PAYLOAD
    assert framer.buffered == 0


def test_a_frame_that_is_too_large_is_not_written() -> None:
    with pytest.raises(PayloadTooLarge):
        framing.frame(1, bytes(MAX_PAYLOAD + 1))


# -- decision 1: the document's PRODUCE does not count its partition


@given(st.lists(st.integers(0), max_size=8))
def test_decision_01_printed_example_in_any_split(cuts: list[int]) -> None:
    stream = PRINTED_PRODUCE + PRINTED_PRODUCE + COUNTED_PRODUCE + PRINTED_PRODUCE + LIST_TOPICS + PRINTED_PRODUCE
    found, framer = feed_in_pieces(stream, cuts)
    counted = Frame(1, 1, COUNTED_PRODUCE[8:])
    assert found == [SHORT, SHORT, counted, SHORT, LISTING, SHORT]
    assert (framer.error, framer.buffered) == (None, 0)


def test_decision_01_printed_example_byte_by_byte() -> None:
    framer = Framer()
    found = [frame for byte in PRINTED_PRODUCE * 2 + LIST_TOPICS for frame in framer.feed(bytes((byte,)))]
    assert found == [SHORT, SHORT, LISTING]
    assert requests.decode(*found[0][::2]) == messages.Produce("test", None, b"hello", -1)


@given(st.lists(st.integers(0), max_size=8))
def test_decision_01_nothing_is_skipped_if_a_frame_follows(cuts: list[int]) -> None:
    found, framer = feed_in_pieces(PRINTED_PRODUCE[:27] + COUNTED_PRODUCE + PRINTED_PRODUCE[:27] + LIST_TOPICS, cuts)
    assert found == [SHORT, Frame(1, 1, COUNTED_PRODUCE[8:]), SHORT, LISTING]
    assert framer.error is None


@given(st.lists(st.integers(0), max_size=8))
def test_decision_01_exactly_four_bytes_are_skipped(cuts: list[int]) -> None:
    found, framer = feed_in_pieces(PRINTED_PRODUCE + b"\xff" + bytes(30), cuts)
    assert found == [SHORT]
    assert str(framer.error) == "invalid magic byte: 0xFF"


@pytest.mark.parametrize(
    "before",
    [
        COUNTED_PRODUCE,  # has its partition
        LIST_TOPICS,  # is no PRODUCE
        PRINTED_PRODUCE[:3] + b"\3" + PRINTED_PRODUCE[4:27],  # is compressed
        bytes.fromhex("AF 01 01 01 00 00 00 04 00 04 74 65"),  # is not well-formed
        bytes.fromhex("AF 01 01 01 00 00 00 0B 00 01 74 00 00 00 00 00 00 00 05"),  # lacks its value
        b"",
    ],
)
def test_decision_01_only_behind_a_produce_that_ends_with_its_value(before: bytes) -> None:
    junk = bytes(range(40))
    for pieces in ([before + junk], [before, junk], [before + junk[:2], junk[2:]]):
        framer = Framer()
        found = [frame for piece in pieces for frame in framer.feed(piece)]
        assert len(found) == bool(before)
        assert str(framer.error) == "invalid magic byte: 0x00"


def test_decision_01_is_not_for_clients() -> None:
    framer = Framer(stray=False)
    assert framer.feed(PRINTED_PRODUCE) == [SHORT]
    assert type(framer.error) is BadMagic


def test_decision_02_printed_reply_with_the_time_of_its_bytes() -> None:
    stored = messages.RecordMetadata("test", 0, 42, 1_706_615_843_840, -1, 5)
    assert replies.encode(1, stored) == PRINTED_REPLY
    assert Framer(stray=False).feed(PRINTED_REPLY) == [Frame(1, 1, PRINTED_REPLY[8:])]
    assert replies.decode(1, PRINTED_REPLY[8:]) == stored
    assert len(PRINTED_REPLY[8:]) == 34


# -- decision 15: compression


@given(st.binary(max_size=2000))
def test_decision_15_gzip(payload: bytes) -> None:
    assert framing.content(Frame(1, 3, gzip.compress(payload))) == payload
    assert framing.content(Frame(1, 2, gzip.compress(payload)), len(payload)) == payload
    assert framing.content(Frame(1, 1, payload)) == payload
    assert framing.content(Frame(1, 0xF1, payload)) == payload


def test_decision_15_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(MalformedPayload, match="too large"):
            framing.decompress(bomb, 100_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_decision_15_the_limit_is_exact() -> None:
    packed = gzip.compress(bytes(1000))
    assert framing.decompress(packed, 1000) == bytes(1000)
    with pytest.raises(MalformedPayload, match="too large"):
        framing.decompress(packed, 999)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"no gzip",
        gzip.compress(b"hello", mtime=0)[:-1],  # ends too early
        gzip.compress(b"hello", mtime=0)[:-8] + bytes(8),  # wrong checksum
        gzip.compress(b"hello", mtime=0) * 2,  # a second member
        gzip.compress(b"hello", mtime=0) + b"\0",
    ],
)
def test_decision_15_what_is_no_gzip_is_refused(packed: bytes) -> None:
    with pytest.raises(MalformedPayload, match="invalid gzip data"):
        framing.decompress(packed, 1000)


@pytest.mark.parametrize(
    ("flags", "name"), [(0x05, "lz4"), (0x07, "zstd"), (0x09, "snappy"), (0x0B, "0x0A"), (0x0E, "0x0E")]
)
def test_decision_15_other_codecs_are_named(flags: int, name: str) -> None:
    with pytest.raises(UnsupportedCompression, match=f"^unsupported compression: {name}$"):
        framing.content(Frame(1, flags, b"data"))


# -- decision 7: errors


def test_decision_07_error_frame() -> None:
    told = errors.error_frame("topic not found")
    assert told == bytes.fromhex("AF 01 FF 01 00 00 00 15 00 00 12") + b"E: topic not found"
    assert told[8:][6:] == b"topic not found"  # what the original's clients show


@given(st.text(max_size=20), st.integers(0, 9000))
def test_decision_07_a_text_is_bounded_and_stays_utf8(text: str, repeat: int) -> None:
    [frame] = Framer(stray=False).feed(errors.error_frame(text * repeat))
    assert len(frame.payload) < 8192
    told = replies.decode(frame.opcode, frame.payload)
    assert isinstance(told, messages.Failure)
    assert (text * repeat).startswith(told.message)
    assert told.message == text * repeat or len(frame.payload) > 7990


def test_an_error_text_may_hold_anything() -> None:
    assert errors.error_frame("a\udcffb").endswith(b"E: a?b")
