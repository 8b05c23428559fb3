"""The quick ways for many records: they say the same as the tables do for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.flymq.strategies import i32, i64, keys, names, u64, values

from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec import fetched_records, replies, requests
from penstock.wire.flymq.codec.coalesced_produce import CoalescedProduce, coalesce_produce
from penstock.wire.flymq.errors import ProtocolError
from penstock.wire.flymq.frames import CoalescingFramer, Frame, Framer
from penstock.wire.flymq.opcodes import Op

FAR = 1 << 40


def produced(topic: str, key: bytes | None, value: bytes, partition: int) -> Frame:
    [frame] = Framer().feed(requests.encode(m.Produce(topic, key, value, partition)))
    return frame


def octets(frame: Frame) -> bytes:
    return bytes((0xAF, 1, frame.opcode, frame.flags)) + len(frame.payload).to_bytes(4) + frame.payload


def one_by_one(frames: list[Frame], max_bytes: int) -> list[m.Produce]:
    """The expected contents of coalesced frames, by `decode`."""
    found: list[m.Produce] = []
    for frame in frames:
        max_bytes -= len(octets(frame))
        if frame.opcode != 1 or frame.flags & 0x0E or frame.flags != frames[0].flags or (found and max_bytes < 0):
            break
        try:
            request = requests.decode(frame.opcode, frame.payload)
        except ProtocolError:
            break
        assert isinstance(request, m.Produce)
        whole = requests.encode(request)[8:] == frame.payload  # with a partition, and nothing behind it
        if not whole or (found and request.topic != found[0].topic):
            break
        found.append(request)
    return found


near_topics = st.sampled_from(["", "t", "tt", "é"])
good = st.builds(produced, near_topics, keys, values, i32)
without_partition = good.map(lambda frame: frame._replace(payload=frame.payload[:-4]))
longer = st.builds(lambda frame, more: frame._replace(payload=frame.payload + more), good, st.binary(max_size=8))
cut = st.builds(lambda frame, size: frame._replace(payload=frame.payload[:-size]), good, st.integers(1, 20))
compressed = good.map(lambda frame: frame._replace(flags=3))
odd = st.builds(Frame, st.sampled_from([1, 1, 2]), st.sampled_from([1, 3, 4, 0]), st.binary(max_size=30))
any_frame = good | good | without_partition | longer | cut | compressed | odd


@given(st.lists(any_frame, min_size=1, max_size=12), st.binary(max_size=40), st.data())
def test_a_run_is_what_decoding_one_by_one_gives(frames: list[Frame], rest: bytes, data: st.DataObject) -> None:
    """Whatever stands before and behind it in the stream."""
    first = data.draw(st.sampled_from([n for n, frame in enumerate(frames) if frame.opcode == 1] or [0]))
    max_bytes = data.draw(st.integers(0, 200) | st.just(FAR))
    frames[first] = frames[first]._replace(opcode=1)
    stream = b"".join(map(octets, frames))
    run = coalesce_produce(stream + rest[:7], len(b"".join(map(octets, frames[:first]))), max_bytes)
    expected = one_by_one(frames[first:], max_bytes)
    if not expected:
        assert run is None
        return
    assert run is not None
    assert run.topic == expected[0].topic
    all_keys = [request.key for request in expected]
    assert run.keys == (all_keys if any(all_keys) else None)
    assert run.values == [request.value for request in expected]
    assert run.partitions == [request.partition for request in expected]
    assert run.count == len(expected)
    assert run.byte_size == len(b"".join(map(octets, frames[first : first + run.count])))
    parts = run.split()
    assert [part.request() for part in parts] == expected
    assert [part.byte_size for part in parts] == [len(octets(frame)) for frame in frames[first : first + run.count]]


def test_a_run_ends_at_its_bytes_but_has_one_record() -> None:
    stream = requests.encode(m.Produce("t", None, b"x" * 77, -1)) * 5
    assert len(stream) == 500
    for max_bytes, count in [(0, 1), (100, 1), (199, 1), (200, 2), (450, 4), (500, 5), (FAR, 5)]:
        run = coalesce_produce(stream, 0, max_bytes)
        assert run is not None
        assert (run.count, run.byte_size) == (count, 100 * count)


def test_a_run_ends_where_the_stream_breaks_off() -> None:
    stream = requests.encode(m.Produce("t", None, b"v", 3)) + requests.encode(m.Produce("t", b"key", b"value", 4))
    whole = coalesce_produce(stream, 0, FAR)
    assert whole is not None and whole.values == [b"v", b"value"]
    for size in range(len(requests.encode(m.Produce("t", None, b"v", 3))), len(stream)):
        run = coalesce_produce(stream[:size], 0, FAR)
        assert run is not None
        assert (run.values, run.partitions, run.keys) == ([b"v"], [3], None)


@pytest.mark.parametrize("other", ["ac", "abc", "a", "é", ""])
def test_another_topic_is_another_run(other: str) -> None:
    stream = requests.encode(m.Produce("ab", None, b"1", 0)) + requests.encode(m.Produce(other, None, b"2", 0))
    run = coalesce_produce(stream, 0, FAR)
    assert run is not None
    assert (run.topic, run.count) == ("ab", 1)


@given(st.lists(any_frame, max_size=8), st.lists(st.integers(1, 30), max_size=12))
def test_a_framer_with_runs_gives_the_same_requests(frames: list[Frame], cuts: list[int]) -> None:
    """However the stream is cut into pieces."""
    framer = CoalescingFramer(coalesce=lambda data, start: coalesce_produce(data, start, 60))
    plain = Framer()
    stream = b"".join(map(octets, frames))
    expected = plain.feed(stream)
    found: list[Frame] = []
    for size in [*cuts, len(stream)]:
        piece, stream = stream[:size], stream[size:]
        for part in framer.feed(piece):
            runs = part.split() if isinstance(part, CoalescedProduce) else [part]
            for run in runs:
                if isinstance(run, CoalescedProduce):
                    found.append(Frame(1, 1, requests.encode(run.request())[8:]))
                else:
                    found.append(run)
    # A run does not tell its flags.
    assert [(f.opcode, f.payload) for f in found] == [(f.opcode, f.payload) for f in expected]
    assert type(framer.error) is type(plain.error)
    assert framer.error is not None or framer.buffered == plain.buffered


columns = st.lists(st.tuples(u64, keys, values), max_size=8)


@given(columns, u64, st.booleans(), st.sampled_from([Op.FETCH, Op.FETCH_BINARY]), st.booleans())
def test_fetched_records_go_round(
    records: list[tuple[int, bytes | None, bytes]], next_offset: int, code_order: bool, opcode: Op, keyless: bool
) -> None:
    code_order = code_order or opcode == Op.FETCH_BINARY
    records = [(offset, None if keyless else key, value) for offset, key, value in records]
    offsets, all_keys, all_values = ([record[i] for record in records] for i in range(3))
    stream = fetched_records.encode_fetched(opcode, offsets, all_keys, all_values, next_offset, code_order)  # type: ignore[arg-type]
    [frame] = Framer(stray=False).feed(stream)
    expected = m.Fetched([m.FetchedRecord(*record) for record in records], next_offset, code_order)
    assert (frame.opcode, frame.flags) == (opcode, 1)
    assert replies.decode(frame.opcode, frame.payload, code_order) == expected


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("code_order", [False, True])
def test_columns_of_other_lengths_are_a_mistake(size: int, code_order: bool) -> None:
    lengths = [2, 2, 2]
    lengths[size - 1] = 1
    with pytest.raises((AssertionError, ValueError)):
        fetched_records.encode_fetched(
            Op.FETCH, range(lengths[0]), [None] * lengths[1], [b""] * lengths[2], 0, code_order
        )


@given(names, st.lists(st.tuples(i32, u64, i32, i32), max_size=8), i64)
def test_replies_to_a_run_are_those_to_each(topic: str, places: list[tuple[int, int, int, int]], time: int) -> None:
    partitions, offsets, key_sizes, value_sizes = ([place[i] for place in places] for i in range(4))
    expected = [m.RecordMetadata(topic, p, o, time, k, v) for p, o, k, v in places]
    stream = replies.encode_metadata_batch(topic, partitions, offsets, time, key_sizes, value_sizes)
    assert stream == b"".join(replies.encode(Op.PRODUCE, reply) for reply in expected)
