"""A binary Produce of one record that arrives alone: the short way says the same as the long one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.wire.rustlog.strategies import requests, u32

from penstock.wire.rustlog import messages as m
from penstock.wire.rustlog.codec.dialect import BINARY
from penstock.wire.rustlog.codec.single_produce import SingleProduceDecoder, encode_single_produced
from penstock.wire.rustlog.frames import Framer, frame

topics = st.sampled_from(["t", "tt", "é"])
single = st.builds(m.Produce, topics, u32, st.binary(max_size=20).map(lambda value: [value]))


@given(st.lists(single | requests, min_size=1, max_size=12))
def test_each_is_what_the_dialect_makes_of_it(messages: list[m.Request]) -> None:
    """Whatever the decoder remembers of the frames before."""
    decoder = SingleProduceDecoder()
    for message in messages:
        data = frame(BINARY.encode_request(message))
        found = decoder.decode(data)
        alone = isinstance(message, m.Produce) and len(message.records) == 1
        assert (found is not None) == alone
        if found is not None:
            assert m.Produce(found.topic, found.partition, [found.value]) == message
            assert found.byte_size == len(data)


@given(single, st.binary(min_size=1, max_size=40), st.integers(1, 40))
def test_nothing_but_one_whole_frame_takes_it(message: m.Produce, more: bytes, less: int) -> None:
    data = frame(BINARY.encode_request(message))
    for known in (False, True):
        decoder = SingleProduceDecoder()
        if known:
            decoder.decode(data)
        assert decoder.decode(data + more) is None
        assert decoder.decode(data[:-less]) is None


@given(single, st.integers(0, 40), st.integers(0, 255))
def test_with_any_byte_changed_it_is_what_the_dialect_makes_of_it(message: m.Produce, at: int, byte: int) -> None:
    decoder, data = SingleProduceDecoder(), frame(BINARY.encode_request(message))
    decoder.decode(data)
    changed = data[:at] + bytes((byte,)) + data[at + 1 :] if at < len(data) else data
    found = decoder.decode(changed)
    if found is not None:
        [payload] = Framer().feed(changed)
        assert BINARY.decode_request(payload) == m.Produce(found.topic, found.partition, [found.value])


@given(st.integers(0, m.MAX_U64))
def test_its_reply_is_that_of_the_dialect(offset: int) -> None:
    assert encode_single_produced(offset) == BINARY.encode_produced(offset, [1])
