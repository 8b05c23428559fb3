"""Binary payloads: they come back as they went, and whatever else arrives is `Malformed` and nothing worse."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.felix.single_frame import only_frame

from penstock.equal_values import EqualValues
from penstock.wire.felix.codec.binary import (
    Ack,
    Batch,
    Events,
    decode_ack,
    decode_batch,
    decode_events,
    encode_ack,
    encode_batch,
    encode_events,
)
from penstock.wire.felix.errors import Advice, ErrorCode, Malformed, Retry
from penstock.wire.felix.frames import ACKED, BATCH, EVENTS, KEYED, OFFSETS, SHARED, SKIPPED, TIMESTAMPS

U64 = st.integers(0, 2**64 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# Those of one length are read and written in a way of their own.
PAYLOADS = st.lists(st.binary(max_size=40), max_size=20) | st.integers(0, 300).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), max_size=20)
)
HEAD = bytes.fromhex("000174 00016e 000173")  # three names


@given(st.builds(Batch, NAMES, NAMES, NAMES, PAYLOADS), st.none() | U64, st.none() | st.binary(max_size=20))
def test_batches_come_back(batch: Batch, request_id: int | None, key: bytes | None) -> None:
    acked, keyed = request_id is not None, key is not None
    batch = batch._replace(request_id=request_id, ack=acked, key=key)

    flags, payload = only_frame(encode_batch(batch))

    assert flags == BATCH | (ACKED if acked else 0) | (KEYED if keyed else 0)
    assert decode_batch(payload, acked=acked, keyed=keyed) == batch


@given(PAYLOADS, st.none() | U64, st.none() | U64)
def test_events_come_back(payloads: list[bytes], subscription_id: int | None, base_offset: int | None) -> None:
    flags, payload = only_frame(encode_events(payloads, subscription_id, base_offset))

    assert bool(flags & EVENTS) is (subscription_id is not None)
    assert bool(flags & SHARED) is (subscription_id is None)
    assert bool(flags & OFFSETS) is (base_offset is not None)
    assert decode_events(flags, payload) == Events(subscription_id, base_offset, payloads)


@given(PAYLOADS, st.none() | U64, U64, st.none() | U64)
def test_events_come_back_with_times_and_what_was_skipped(
    payloads: list[bytes], subscription_id: int | None, skipped: int, base_offset: int | None
) -> None:
    times = list(range(1_700_000_000_000_000, 1_700_000_000_000_000 + len(payloads)))

    flags, payload = only_frame(encode_events(payloads, subscription_id, base_offset, skipped, times))

    told = skipped or None if base_offset is not None else None  # from which offset it counts is not known without one
    assert bool(flags & SKIPPED) is bool(told)
    assert flags & TIMESTAMPS
    assert decode_events(flags, payload) == Events(subscription_id, base_offset, payloads, told, times)
    for end in range(len(payload)):
        with pytest.raises(Malformed, match="ends too early"):
            decode_events(flags, payload[:end])


@given(U64, st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=100))
def test_acknowledgements_come_back(request_id: int, error: str | None) -> None:
    assert decode_ack(only_frame(encode_ack(request_id, error)).payload) == Ack(request_id, error)


@pytest.mark.parametrize(
    ("ack", "detailed", "frame"),
    [
        (Ack(7, None, 42), False, "1010 00 0000000000000007 0000 000000000000002a"),
        (Ack(7, "no", None, Advice(ErrorCode.NOT_FOUND, Retry.FATAL)), False,
         "0210 01 0000000000000007 0002 6e6f 0003 05"),
        (Ack(7, "no", None, Advice(ErrorCode.OVERLOADED, Retry.RETRY_AFTER, 1000)), True,
         "0610 01 0000000000000007 0002 6e6f 000a 02 0000 00000000000003e8"),
    ],
)  # fmt: skip
def test_acknowledgements_with_offset_code_and_pause(ack: Ack, detailed: bool, frame: str) -> None:
    data = bytes.fromhex(frame)
    flags, payload = only_frame(encode_ack(*ack, detailed=detailed))
    assert (flags.to_bytes(2), payload) == (data[:2], data[2:])
    assert decode_ack(payload, flags) == ack
    with pytest.raises(Malformed, match="ends too early"):
        decode_ack(payload[:-1], flags)


def test_a_code_that_nobody_knows_is_fatal() -> None:
    payload = bytes.fromhex("01 0000000000000007 0000 7fff 7f")
    assert decode_ack(payload, 0x0210) == Ack(7, "", None, Advice(None, Retry.FATAL))


def test_too_long_a_key_is_not_written() -> None:
    with pytest.raises(ValueError, match="a key of 65536 bytes; the most is 65535"):
        encode_batch(Batch("t", "n", "s", [], key=bytes(65536)))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("e" * 512, "e" * 512),
        ("e" * 513, "e" * 512),
        ("e" + "é" * 400, "e" + "é" * 255),  # 1 + 510 bytes: half a character is left out
        ("€" * 200, "€" * 170),
        ("", ""),
    ],
)
def test_the_text_of_an_acknowledgement_is_cut_at_the_end_of_a_character(error: str, told: str) -> None:
    assert decode_ack(only_frame(encode_ack(1, error)).payload) == Ack(1, told)


@given(st.builds(Batch, NAMES, NAMES, NAMES, PAYLOADS, U64, st.just(True), st.none()), st.binary(max_size=30))
def test_what_follows_the_last_payload_is_ignored(batch: Batch, rest: bytes) -> None:
    payload = only_frame(encode_batch(batch)).payload

    assert decode_batch(payload + rest, acked=True) == batch


@given(st.builds(Batch, NAMES, NAMES, NAMES, PAYLOADS, U64, st.just(True), st.none()), st.data())
def test_a_batch_that_ends_too_early_is_malformed_and_its_id_is_known(batch: Batch, data: st.DataObject) -> None:
    payload = only_frame(encode_batch(batch)).payload
    held = data.draw(st.integers(0, len(payload) - 1))

    with pytest.raises(Malformed) as refused:
        decode_batch(payload[:held], acked=True)

    assert refused.value.request_id == (batch.request_id if held >= 9 else None)
    assert refused.value.text.startswith("malformed publish batch: ")


@pytest.mark.parametrize("mode", [0, 3, 255])
def test_a_mode_that_nobody_knows_is_refused_with_the_id(mode: int) -> None:
    with pytest.raises(Malformed, match=f"unknown ack mode {mode}") as refused:
        decode_batch(struct.pack(">QB", 7, mode) + HEAD + bytes(4), acked=True)

    assert refused.value.request_id == 7


@pytest.mark.parametrize("broken", ["0001ff 00016e 000173", "000174 0002c328 000173", "000174 00016e 0003eda080"])
def test_names_are_utf8(broken: str) -> None:
    with pytest.raises(Malformed, match="a name is not UTF-8") as refused:
        decode_batch(struct.pack(">QB", 7, 2) + bytes.fromhex(broken) + bytes(4), acked=True)

    assert refused.value.request_id == 7


@pytest.mark.parametrize("count", [150_001, 2**32 - 1])
def test_nothing_is_done_for_a_count_that_cannot_be_true(count: int) -> None:
    body = struct.pack(">I", count) + bytes.fromhex("00000002 6162") * 100_000  # has room for 150,000 lengths
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            decode_batch(HEAD + body, acked=False)
        with pytest.raises(Malformed):
            decode_events(SHARED, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1_000_000  # one copy of the body, and no payloads


def test_a_payload_that_is_longer_than_the_frame() -> None:
    with pytest.raises(Malformed, match="ends too early"):
        decode_events(SHARED, bytes.fromhex("00000001 00000004 616263"))


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_536])
@pytest.mark.parametrize("odd", [0, 1, 9, 19])
@pytest.mark.parametrize("more", [0, 1, 256, 65_536])
def test_payloads_of_one_length_but_perhaps_one(size: int, odd: int, more: int) -> None:
    payloads = [bytes([i]) * size for i in range(20)]
    payloads[odd] += bytes(more)
    by_hand = struct.pack(">I", 20) + b"".join(struct.pack(">I", len(payload)) + payload for payload in payloads)

    frame = only_frame(encode_events(payloads))

    assert frame.payload == by_hand
    assert decode_events(SHARED, by_hand + b"rest").payloads == payloads
    for held in (len(by_hand) - 1, len(by_hand) - size - 4, 12):
        with pytest.raises(Malformed):
            decode_events(SHARED, by_hand[:held])


@pytest.mark.parametrize("size", [0, 200, 256, 65_536])
@pytest.mark.parametrize("odd", [None, 0, 9, 19])
@pytest.mark.parametrize("before", [b"", struct.pack(">QB", 7, 2)])
def test_large_batches_of_one_length_are_not_cut(size: int, odd: int | None, before: bytes) -> None:
    payloads = [bytes([i]) * size for i in range(20)]
    if odd is not None:
        payloads[odd] += b"more"
    by_hand = struct.pack(">I", 20) + b"".join(struct.pack(">I", len(payload)) + payload for payload in payloads)

    batch = decode_batch(before + HEAD + by_hand + b"rest", acked=bool(before))

    assert batch.payloads == payloads
    assert isinstance(batch.payloads, EqualValues) is (odd is None and size > 200)
    assert encode_events(batch.payloads, 1, 2) == encode_events(payloads, 1, 2)
    assert encode_events(batch.payloads[3:7], None, 2, 3) == encode_events(payloads[3:7], None, 2, 3)
    times = list(range(20))
    assert encode_events(batch.payloads, timestamps=times) == encode_events(payloads, timestamps=times)
    for held in (len(by_hand) - 1, len(by_hand) - size - 4, 12):
        with pytest.raises(Malformed):
            decode_batch(before + HEAD + by_hand[:held], acked=bool(before))


def test_what_comes_after_the_payloads_of_a_batch_is_not_kept_with_them() -> None:
    payloads = (struct.pack(">I", 1000) + bytes(1000)) * 20
    batch = decode_batch(HEAD + struct.pack(">I", 20) + payloads + bytes(1 << 20), acked=False)
    assert isinstance(batch.payloads, EqualValues)
    assert batch.payloads == [bytes(1000)] * 20
    assert batch.payloads.held_bytes == len(payloads)


def test_empty_batches_are_legal() -> None:
    assert decode_batch(HEAD + bytes(4), acked=False) == Batch("t", "n", "s", [])
    assert decode_events(SHARED, bytes(4)) == Events(None, None, [])


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ("", "ends too early"),
        ("00 0000000000000007 00", "ends too early"),
        ("01 0000000000000007 0003 6162", "ends too early"),
        ("02 0000000000000007 0000", "unknown status 2"),
        ("01 0000000000000007 0001 ff", "not UTF-8"),
    ],
)
def test_malformed_acknowledgements(payload: str, text: str) -> None:
    with pytest.raises(Malformed, match=text):
        decode_ack(bytes.fromhex(payload))


def test_a_name_that_does_not_fit_is_not_sent() -> None:
    assert decode_batch(only_frame(encode_batch(Batch("t" * 65535, "n", "s", []))).payload, acked=False)

    with pytest.raises(ValueError, match="a name of 65536 bytes; the most is 65535"):
        encode_batch(Batch("t", "é" * 32768, "s", []))


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda rest: HEAD + rest), st.integers(0, 0x3F))
def test_anything_else_is_malformed(payload: bytes, flags: int) -> None:
    for decode in (
        lambda: decode_batch(payload, acked=False),
        lambda: decode_batch(payload, acked=True),
        lambda: decode_ack(payload),
        lambda: decode_events(flags, payload),
    ):
        try:
            decode()
        except Malformed as problem:
            assert problem.text
