"""A PRODUCE that arrives alone: the short way says the same as the long one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.wire.flymq.test_coalesced_produce import FAR, any_frame, good, octets

from penstock.wire.flymq.codec.coalesced_produce import coalesce_produce
from penstock.wire.flymq.codec.single_produce import SingleProduceDecoder
from penstock.wire.flymq.frames import CoalescingFramer, Frame


@given(st.lists(any_frame, min_size=1, max_size=12))
def test_each_is_what_the_long_way_makes_of_it(frames: list[Frame]) -> None:
    """Whatever the decoder remembers of the frames before."""
    decoder = SingleProduceDecoder()
    for frame in frames:
        data = octets(frame)
        found = decoder.decode(data)
        if found is not None:
            assert found.coalesced() == coalesce_produce(data, 0, len(data))
            assert found.byte_size == len(data)


@given(st.lists(good, min_size=1, max_size=12))
def test_every_frame_without_a_key_takes_it(frames: list[Frame]) -> None:
    decoder = SingleProduceDecoder()
    for frame in frames:
        data = octets(frame)
        batch = coalesce_produce(data, 0, len(data))
        assert batch is not None
        assert (decoder.decode(data) is not None) == (batch.keys is None), frame


@given(good, st.binary(min_size=1, max_size=40), st.integers(1, 40))
def test_nothing_but_one_whole_frame_takes_it(frame: Frame, more: bytes, less: int) -> None:
    data = octets(frame)
    for known in (False, True):
        decoder = SingleProduceDecoder()
        if known:
            decoder.decode(data)
        assert decoder.decode(data + more) is None
        assert decoder.decode(data[:-less]) is None


@given(good, st.integers(0, 40), st.integers(0, 255))
def test_with_any_byte_changed_it_is_what_the_long_way_makes_of_it(frame: Frame, at: int, byte: int) -> None:
    decoder, data = SingleProduceDecoder(), octets(frame)
    decoder.decode(data)
    changed = data[:at] + bytes((byte,)) + data[at + 1 :] if at < len(data) else data
    found = decoder.decode(changed)
    if found is not None:
        framer = CoalescingFramer(coalesce=lambda data, start: coalesce_produce(data, start, FAR))
        assert framer.feed(changed) == [found.coalesced()]
        assert framer.between_frames
