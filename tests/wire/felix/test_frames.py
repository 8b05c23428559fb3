"""Frames: whatever way the bytes arrive, the same frames come out, and a bad header stops everything behind it."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.felix import frames as module
from penstock.wire.felix.frames import HEADER_SIZE, KNOWN, BadFrame, Code, Flag, Frame, Framer, frame, header

FRAMES = st.lists(st.builds(Frame, st.integers(0, 0xFFFF), st.binary(max_size=40)), max_size=10)
CUTS = st.lists(st.integers(0, 600), max_size=12)
BAD = {
    "magic": ("464c5832 0001 0000 00000000", Code.BAD_MAGIC, "does not begin with FLX1"),
    "little-endian": ("31584c46 0100 0000 00000000", Code.BAD_MAGIC, "does not begin with FLX1"),
    "version 0": ("464c5831 0000 0000 00000000", Code.BAD_VERSION, "unsupported protocol version 0"),
    "version 2": ("464c5831 0002 0000 00000000", Code.BAD_VERSION, "unsupported protocol version 2"),
    "little-endian version": ("464c5831 0100 0000 00000000", Code.BAD_VERSION, "unsupported protocol version 256"),
    "one too long": ("464c5831 0001 0000 00000401", Code.TOO_LARGE, "a frame of 1025 bytes; the most is 1024"),
    "4 GiB": ("464c5831 0001 0000 ffffffff", Code.TOO_LARGE, "a frame of 4294967295 bytes"),
    "all of them": ("00000000 0000 0000 ffffffff", Code.BAD_MAGIC, "does not begin with FLX1"),
    "version and length": ("464c5831 0003 0000 ffffffff", Code.BAD_VERSION, "unsupported protocol version 3"),
}


def encoded(given: list[Frame]) -> bytes:
    return b"".join(frame(payload, flags) for flags, payload in given)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def taken(frames: Framer) -> list[Frame]:
    found = []
    while (one := frames.next()) is not None:
        found.append(one)
    return found


@given(FRAMES, CUTS)
def test_any_split_gives_the_same_frames(sent: list[Frame], cuts: list[int]) -> None:
    frames = Framer(1024)
    found = []
    for piece in pieces(encoded(sent), cuts):
        frames.feed(piece)
        found += taken(frames)

    assert found == sent
    assert frames.buffered == 0
    assert not frames.started


@given(FRAMES, CUTS, st.lists(st.booleans(), max_size=14))
def test_it_does_not_matter_when_frames_are_taken(sent: list[Frame], cuts: list[int], when: list[bool]) -> None:
    frames = Framer(1024)
    found = []
    for i, piece in enumerate(pieces(encoded(sent), cuts)):
        frames.feed(piece)
        if i < len(when) and when[i] and (one := frames.next()) is not None:
            found.append(one)

    assert found + taken(frames) == sent


@given(FRAMES, st.sampled_from(sorted(BAD)), st.binary(max_size=30), CUTS)
def test_frames_before_a_bad_header_come_out_in_any_split(
    sent: list[Frame], name: str, rest: bytes, cuts: list[int]
) -> None:
    bad, code, _ = BAD[name]
    frames = Framer(1024)
    found: list[Frame] = []
    refused = []
    for piece in pieces(encoded(sent) + bytes.fromhex(bad) + rest, cuts):
        frames.feed(piece)
        try:
            while (one := frames.next()) is not None:
                found.append(one)
        except BadFrame as problem:
            refused.append(problem.code)

    assert found == sent
    assert set(refused) == {code}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_header_is_refused_for_good(name: str) -> None:
    data, code, text = BAD[name]
    frames = Framer(1024)
    frames.feed(bytes.fromhex(data))

    for _ in range(2):
        with pytest.raises(BadFrame) as refused:
            frames.next()
        assert refused.value.code == code
        assert text in refused.value.text
        frames.feed(frame(b"{}"))


def test_the_largest_frame() -> None:
    frames = Framer(1024)
    frames.feed(frame(bytes(1024), 0x8000))

    assert frames.next() == Frame(0x8000, bytes(1024))


def test_who_speaks_another_protocol_is_told_before_a_header_is_there() -> None:
    frames = Framer()
    frames.feed(b"FL")
    assert frames.next() is None
    frames.feed(b"Y1")

    with pytest.raises(BadFrame) as refused:
        frames.next()

    assert refused.value.code == Code.BAD_MAGIC


def test_who_speaks_another_protocol_is_told_at_the_first_byte_that_shows_it_in_any_split() -> None:
    framer = Framer()
    framer.feed(b"F")
    assert framer.next() is None
    framer.feed(b"X")
    with pytest.raises(BadFrame):
        framer.next()


@pytest.mark.parametrize(
    ("held", "started", "in_payload"), [(0, False, False), (1, True, False), (11, True, False), (12, True, True)]
)
def test_how_much_of_a_frame_is_there(held: int, started: bool, in_payload: bool) -> None:
    frames = Framer()
    frames.feed(frame(b"before") + frame(b"cut off")[:held])

    assert taken(frames) == [Frame(0, b"before")]
    assert frames.buffered == held
    assert frames.started is started
    assert frames.in_payload is in_payload


def test_a_frame_without_payload() -> None:
    frames = Framer()
    frames.feed(header(0, 3) + header(0))

    assert taken(frames) == [Frame(3, b""), Frame(0, b"")]


def test_clear_forgets_what_was_begun() -> None:
    frames = Framer()
    frames.feed(frame(b"x" * 100)[:50])
    assert frames.next() is None

    frames.clear()
    frames.feed(frame(b"new"))

    assert taken(frames) == [Frame(0, b"new")]


def test_an_announced_length_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        frames = Framer(1 << 30)
        frames.feed(header(1 << 30))
        assert frames.next() is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 100_000


def test_frames_that_were_given_out_are_not_kept_by_the_beginning_of_the_next() -> None:
    tracemalloc.start()
    try:
        frames = Framer()
        frames.feed(frame(bytes(8 << 20)) + b"FLX1")
        assert frames.next() is not None
        assert frames.next() is None
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 100_000
    assert frames.buffered == 4


@pytest.mark.parametrize("size", [700, 16_000])
def test_a_large_frame_in_pieces_is_put_together_once(size: int) -> None:
    """Otherwise 16 MiB in pieces of 700 B would be copied 23,968 times, which takes minutes."""
    frames = Framer()
    data = frame(bytes(16 << 20))
    for piece in (data[i : i + size] for i in range(0, len(data), size)):
        assert frames.next() is None
        frames.feed(piece)

    assert frames.next() == Frame(0, bytes(16 << 20))


def test_tiny_pieces_take_little_more_memory_than_their_bytes() -> None:
    data = frame(bytes(100_000))
    tracemalloc.start()
    try:
        frames = Framer()
        for at in range(len(data) - 1):
            frames.feed(data[at : at + 1])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 200_000


@given(st.binary(max_size=200), CUTS)
def test_anything_else_is_a_bad_frame(data: bytes, cuts: list[int]) -> None:
    frames = Framer(64)
    try:
        for piece in pieces(data, cuts):
            frames.feed(piece)
            taken(frames)
    except BadFrame as problem:
        assert problem.code in set(Code)
        assert problem.text
    else:
        assert data[:4] == b"FLX1"[: len(data)]


def test_plain_integers_are_the_flags() -> None:
    assert all(getattr(module, flag.name or "") == flag for flag in Flag)
    assert sum(Flag) == KNOWN
    assert len(header(0)) == HEADER_SIZE
