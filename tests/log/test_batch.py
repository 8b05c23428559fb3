"""A batch as bytes: its layout, what comes back out of it, and that no change to it goes unseen."""

from __future__ import annotations

import struct
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.equal_values import EqualValues
from penstock.log.batch import Batch, BatchDamaged, Headers, RecordSlice, check, outline
from penstock.log.checksum import crc32c
from penstock.log.engine import partition_id
from penstock.log.open_batch import OpenBatch, build_equal

P = partition_id(3, 5)
PLENTY = 1 << 30

KEYS, KEY_NULLS, HEADERS, EXPIRES = 1, 2, 4, 8


def batch_of(
    values: list[bytes],
    keys: list[bytes | None] | None = None,
    headers: list[Headers] | None = None,
    expires: list[int] | None = None,
    *,
    base: int = 40,
    at: int = 1000,
) -> bytes:
    open_batch = OpenBatch(P, base)
    open_batch.extend(values, keys, headers, expires, at)
    return open_batch.build(77)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def with_checksum(body: bytes) -> bytes:
    whole = body + bytes(4)
    return whole + struct.pack("<I", crc32c(whole))


def header(length: int, flags: int, count: int, header_count: int, sizes: tuple[int, int, int, int]) -> bytes:
    return struct.pack(
        "<4sIIIIIQQIIIIIIqq", b"PSB1", length, flags, 0, 3, 5, 40, 77, count, header_count, *sizes, 1000, 1000
    )


# -- the layout


def test_the_smallest_batch_byte_by_byte() -> None:
    golden = bytes.fromhex(
        "50534231"  # PSB1
        "70000000"  # 112 bytes in all
        "00000000 00000000"  # no flags, reserved
        "03000000 05000000"  # topic 3, partition 5
        "2800000000000000"  # base offset 40
        "4d00000000000000"  # position 77
        "01000000 00000000"  # one record, no header
        "00000000 02000000 00000000 00000000"  # bytes of keys, values, header names, header values
        "e803000000000000 e803000000000000"  # lowest and highest timestamp: 1000
        "e803000000000000"  # timestamps
        "00000000 02000000"  # value offsets
        "6869000000000000"  # "hi", padded
        "00000000"  # trailer
    )
    assert batch_of([b"hi"]) == golden + struct.pack("<I", crc32c(golden))


def test_a_batch_with_every_column_byte_by_byte() -> None:
    keys: list[bytes | None] = [b"k", None, b""]
    headers: list[Headers] = [(("a", b"xy"), ("bc", b"")), (), (("é", b"z"),)]
    built = batch_of([b"one", b"", b"three"], keys, headers, [0, 5, 9])
    columns = b"".join(
        [
            struct.pack("<3q", 1000, 1000, 1000),
            struct.pack("<3q", 0, 5, 9),  # expires
            padded(b"\x05"),  # keys 0 and 2 are there
            padded(struct.pack("<4i", 0, 1, 1, 1)),  # key offsets
            padded(struct.pack("<4i", 0, 3, 3, 8)),  # value offsets
            padded(struct.pack("<4i", 0, 2, 2, 3)),  # which headers belong to which record
            padded(struct.pack("<4i", 0, 1, 3, 5)),  # header names; é has two bytes
            padded(struct.pack("<4i", 0, 2, 2, 3)),  # header values
            padded(b"k") + padded(b"onethree") + padded("abcé".encode()) + padded(b"xyz"),
        ]
    )
    length = 80 + len(columns) + 8
    flags = KEYS | KEY_NULLS | HEADERS | EXPIRES
    assert built == with_checksum(header(length, flags, 3, 3, (1, 8, 5, 3)) + columns)


def test_columns_that_no_record_has_take_no_space() -> None:
    assert len(batch_of([b"12345678"] * 2)) == 80 + 16 + padded_size(12) + 16 + 8
    with_keys = batch_of([b"12345678"] * 2, [b"a", b"b"])
    assert len(with_keys) == len(batch_of([b"12345678"] * 2)) + padded_size(12) + 8
    assert Batch(with_keys).flags == KEYS  # all keys are there: no bitmap


def padded_size(size: int) -> int:
    return size + -size % 8


def test_an_arrow_reader_finds_aligned_buffers() -> None:
    """Arrow wants 8-byte aligned buffers, int32 offsets that start at 0, and values without gaps."""
    values = [b"a" * n for n in range(13)]
    data = batch_of(values, [None, *[b"k"] * 12], None, list(range(13)))
    batch = check(data)
    ends = [0, *accumulate(map(len, values))]
    timestamps_at = 80
    expires_at = timestamps_at + 8 * 13
    bitmap_at = expires_at + 8 * 13
    key_offsets_at = bitmap_at + 8
    value_offsets_at = key_offsets_at + padded_size(4 * 14)
    key_bytes_at = value_offsets_at + padded_size(4 * 14)
    value_bytes_at = key_bytes_at + padded_size(12)
    for start in (timestamps_at, expires_at, bitmap_at, key_offsets_at, value_offsets_at, value_bytes_at):
        assert start % 8 == 0
    whole = memoryview(data)
    assert whole[value_offsets_at : value_offsets_at + 4 * 14].cast("i").tolist() == ends
    assert whole[timestamps_at:expires_at].cast("q").tolist() == [1000] * 13
    assert whole[bitmap_at] == 0xFE and whole[bitmap_at + 1] == 0x1F
    assert bytes(whole[value_bytes_at : value_bytes_at + ends[-1]]) == b"".join(values)
    # The same through the accessors, which must give views of the batch and not copies of it.
    for view in (batch.timestamps(), batch.expires(), batch.key_offsets(), batch.value_offsets()):
        assert view is not None and view.obj is data
    assert batch.value_offsets().tolist() == ends


# -- what goes in comes out

names = st.text(max_size=4)
small = st.binary(max_size=12)


@st.composite
def appends(draw: st.DrawFn) -> list[tuple[list[bytes], object, object, object, int]]:
    """Appends to one batch; each has or has not each optional column."""
    made = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 10))

        def column(strategy: st.SearchStrategy[object], size: int = count) -> object:
            return draw(st.none() | st.lists(strategy, min_size=size, max_size=size))

        made.append(
            (
                draw(st.lists(small, min_size=count, max_size=count)),
                column(st.none() | small),
                column(st.lists(st.tuples(names, small), max_size=3).map(tuple)),
                column(st.integers(0, 2**62)),
                draw(st.integers(-(2**62), 2**62)),
            )
        )
    return made


@given(appends())
def test_every_column_comes_back(made: list[tuple[list[bytes], object, object, object, int]]) -> None:
    open_batch = OpenBatch(P, 40)
    expected: list[tuple[object, ...]] = []
    for values, keys, headers, expires, at in made:
        open_batch.extend(values, keys, headers, expires, at)  # type: ignore[arg-type]
        count = len(values)
        columns = (values, keys or [None] * count, headers or [()] * count, expires or [0] * count, [at] * count)
        expected += zip(*columns, strict=True)  # type: ignore[call-overload]
    batch = check(open_batch.build(77))
    part = batch.slice(40, 40 + batch.count, PLENTY, PLENTY)
    assert rows(part) == expected
    assert (batch.partition, batch.base_offset, batch.position) == (P, 40, 77)
    stamps = [at for *_, at in made]
    assert (batch.min_timestamp, batch.max_timestamp) == (min(stamps), max(stamps))
    assert outline(b"xxxxx" + batch.data, 5) == (P, 40, batch.count, max(stamps))
    assert len(batch.data) % 8 == 0


def rows(part: RecordSlice) -> list[tuple[object, ...]]:
    columns = (part.values(), part.keys(), part.headers(), part.expires(), part.timestamps())
    return list(zip(*columns, strict=True))


def test_an_empty_key_is_not_a_missing_key() -> None:
    batch = check(batch_of([b"a", b"b", b"c"], [b"", None, b"k"]))
    assert batch.keys(0, 3) == [b"", None, b"k"]
    assert batch.keys(1, 3) == [None, b"k"]


def test_columns_may_appear_and_disappear_between_appends() -> None:
    open_batch = OpenBatch(P, 0)
    open_batch.extend([b"a"], None, None, None, 1)
    open_batch.extend([b"b"], [b"k"], [(("h", b"v"),)], [7], 2)
    open_batch.extend([b"c"], None, None, None, 3)
    part = check(open_batch.build(0)).slice(0, 3, PLENTY, PLENTY)
    assert part.keys() == [None, b"k", None]
    assert part.headers() == [(), (("h", b"v"),), ()]
    assert part.expires() == [0, 7, 0]
    assert part.timestamps() == [1, 2, 3]


# -- slices


@given(
    st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9)), min_size=1, max_size=20),
    st.booleans(),
    st.data(),
)
def test_a_slice_is_the_longest_run_that_fits(
    records: list[tuple[bytes, bytes | None]], keyed: bool, data: st.DataObject
) -> None:
    values = [value for value, _ in records]
    keys = [key for _, key in records] if keyed else None
    batch = check(batch_of(values, keys))
    first = data.draw(st.integers(0, len(values) - 1))
    below = data.draw(st.integers(first + 1, len(values) + 3))
    max_bytes, max_records = data.draw(st.integers(0, 60)), data.draw(st.integers(1, 25))
    part = batch.slice(40 + first, 40 + below, max_bytes, max_records)
    sizes = [len(v) + len((k or b"") if keyed else b"") for v, k in records]
    count, size = 1, sizes[first]
    while first + count < min(below, len(values)) and count < max_records and size + sizes[first + count] <= max_bytes:
        size += sizes[first + count]
        count += 1
    assert (part.base_offset, part.end_offset, len(part)) == (40 + first, 40 + first + count, count)
    assert part.values() == values[first : first + count]
    assert part.byte_size() == size
    assert part.position == 77 + first


def test_a_record_larger_than_the_limit_comes_alone() -> None:
    part = check(batch_of([b"x" * 100, b"y"])).slice(40, 42, 10, PLENTY)
    assert part.values() == [b"x" * 100]


@pytest.mark.parametrize(
    ("stamps", "wanted", "found"),
    [
        ((10, 20, 20, 30), 0, 40),
        ((10, 20, 20, 30), 10, 40),
        ((10, 20, 20, 30), 11, 41),
        ((10, 20, 20, 30), 30, 43),
        ((10, 20, 20, 30), 31, None),
        ((30, 10, 20), 15, 40),  # the clock went back
        ((10, 30, 20), 20, 41),
        ((30, 10, 20), 31, None),
    ],
)
def test_the_first_record_not_older_than_a_time(stamps: tuple[int, ...], wanted: int, found: int | None) -> None:
    open_batch = OpenBatch(P, 40)
    for stamp in stamps:
        open_batch.extend([b"v"], None, None, None, stamp)
    part = check(open_batch.build(0)).slice(40, 44, PLENTY, PLENTY)
    assert part.first_at(wanted) == found


# -- damage

WHOLE = batch_of([b"one", b"", b"three"], [b"k", None, b""], [(("a", b"xy"),), (), ()], [0, 5, 9])


def test_every_flipped_bit_is_seen() -> None:
    for at in range(len(WHOLE)):
        for bit in range(8):
            damaged = bytearray(WHOLE)
            damaged[at] ^= 1 << bit
            with pytest.raises(BatchDamaged):
                check(bytes(damaged))


def test_every_truncation_and_every_addition_is_seen() -> None:
    for size in range(len(WHOLE)):
        with pytest.raises(BatchDamaged):
            check(WHOLE[:size])
    for more in (b"\0", bytes(8), WHOLE):
        with pytest.raises(BatchDamaged):
            check(WHOLE + more)


@pytest.mark.parametrize(
    ("field", "value"), [(32 + 8, 0), (32 + 8, 2), (8, KEYS), (32 + 20, 999)], ids=["none", "count", "flags", "bytes"]
)
def test_a_right_checksum_over_wrong_columns_is_refused(field: int, value: int) -> None:
    body = bytearray(batch_of([b"one", b"two", b"three"])[:-4])
    struct.pack_into("<I", body, field, value)
    with pytest.raises(BatchDamaged):
        check(bytes(body) + struct.pack("<I", crc32c(bytes(body))))


@pytest.mark.parametrize("values", [[b"one"], [b"one", b"two"]])
def test_a_batch_keeps_the_door_of_its_records(values: list[bytes]) -> None:
    open_batch = OpenBatch(P, 40, door=5)
    open_batch.extend(values, None, None, None, 1000)
    found = check(open_batch.build(77))
    assert (found.door, found.flags, found.partition) == (5, 0, P)
    assert check(batch_of(values)).door == 0  # as all batches of earlier versions


# -- values of one length


@given(st.integers(2, 300), st.integers(1, 40), st.integers(0, 1 << 40), st.integers(0, 255))
def test_values_of_one_length_become_the_same_batch_as_any_others(
    count: int, length: int, stamp: int, door: int
) -> None:
    values = [number.to_bytes(2).ljust(length, b".")[:length] for number in range(count)]
    data = b"".join(length.to_bytes(4) + value for value in values)
    open_batch = OpenBatch(P, 40, door)
    open_batch.extend(values, None, None, None, stamp)
    assert build_equal(P, 40, 77, EqualValues.of(data, 0, count, length), stamp, door) == open_batch.build(77)


@given(st.integers(1, 200), st.integers(0, 12), st.booleans(), st.data())
def test_values_are_read_in_any_part_of_a_batch(count: int, length: int, odd: bool, data: st.DataObject) -> None:
    """Many of one length are cut out together; one of another length, without a change of the sum, is enough not to."""
    values = [number.to_bytes(2).ljust(length, b".")[:length] for number in range(count)]
    if odd and count > 1 and length:
        values[0], values[-1] = values[0][:-1], values[-1] + b"!"
    first = data.draw(st.integers(0, count - 1))
    end = data.draw(st.integers(first, count))
    assert check(batch_of(values)).values(first, end) == values[first:end]
