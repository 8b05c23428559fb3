"""A commit group as bytes: header, entries, and that nothing else passes for one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.log.checksum import crc32c
from penstock.log.engine import partition_id
from penstock.log.group_format import (
    CORE,
    ENGINE,
    HEADER_SIZE,
    GroupDamaged,
    GroupHeader,
    decode_event,
    decode_header,
    encode_event,
    encode_header,
    entries_checksum,
    search_pattern,
    walk,
)
from penstock.log.open_batch import OpenBatch

SALT = 0x1122334455667788


def a_batch(value: bytes = b"value") -> bytes:
    batch = OpenBatch(partition_id(1, 0), 0)
    batch.extend([value], None, None, None, 1000)
    return batch.build(0)


def group_of(entries: list[bytes], salt: int = SALT) -> bytes:
    length = HEADER_SIZE + sum(map(len, entries))
    header = GroupHeader(9, 7, 100, 1000, length, len(entries), entries_checksum(entries), 0, len(entries))
    return encode_header(salt, header) + b"".join(entries)


ENTRIES = [encode_event(CORE, b"an event"), a_batch(), encode_event(ENGINE, b""), a_batch(b"")]
GROUP = group_of(ENTRIES)


def read(data: bytes, salt: int = SALT) -> list[bytes]:
    """As recovery does: the header, then the group if all of it is there."""
    if len(data) < HEADER_SIZE:
        raise GroupDamaged("too short")
    header = decode_header(data, 0, salt)
    if header.length > len(data):
        raise GroupDamaged("cut off")
    return [data[start:end] for _, start, end in walk(data[: header.length], header)]


def test_the_header_byte_by_byte() -> None:
    header = GroupHeader(9, 7, 100, 1000, 72, 0, 0, 1, 3)
    rest = struct.pack("<QQQQqIIIIQ", SALT, 9, 7, 100, 1000, 72, 0, 0, 1, 3)
    encoded = encode_header(SALT, header)
    assert encoded == b"PSG1" + struct.pack("<I", crc32c(rest)) + rest
    assert len(encoded) == HEADER_SIZE == 72
    assert decode_header(b"before" + encoded, 6, SALT) == header


def test_an_event_byte_by_byte() -> None:
    body = b"PSE1" + struct.pack("<II", 24, 3) + bytes([CORE, 0, 0, 0]) + b"abc" + bytes(1)
    assert encode_event(CORE, b"abc") == body + struct.pack("<I", crc32c(body))


@given(st.sampled_from([ENGINE, CORE]), st.binary(max_size=40))
def test_an_event_comes_back_and_keeps_the_alignment(owner: int, payload: bytes) -> None:
    entry = encode_event(owner, payload)
    assert len(entry) % 8 == 0
    assert decode_event(entry) == (owner, payload)


def test_the_entries_are_found_in_order_with_their_kinds() -> None:
    header = decode_header(GROUP, 0, SALT)
    places = walk(GROUP, header)
    assert [GROUP[start:end] for _, start, end in places] == ENTRIES
    assert [is_batch for is_batch, _, _ in places] == [False, True, False, True]


def test_a_group_of_another_file_is_none() -> None:
    """So neither what a client sent nor an earlier use of the disk can pass for a group."""
    with pytest.raises(GroupDamaged):
        decode_header(GROUP, 0, SALT + 1)


def test_the_search_pattern_finds_headers() -> None:
    magic, salt = search_pattern(SALT)
    at = 24
    data = bytes(at) + GROUP
    assert data.find(magic) == at
    assert data[at + 8 : at + 16] == salt


def test_a_header_is_bound_to_its_entries() -> None:
    """Whole entries that do not belong there: swapped, repeated, left out, or from a group of the same shape."""
    head = GROUP[:HEADER_SIZE]
    one, two, three, four = ENTRIES
    other = encode_event(CORE, b"an Event")
    for entries in (
        [three, two, one, four],
        [one, one, three, four],
        [other, two, three, four],
        [two, one, four, three],
    ):
        body = b"".join(entries)
        with pytest.raises(GroupDamaged):
            read(head + body.ljust(len(GROUP) - HEADER_SIZE, b"\0"))
    assert read(head + b"".join(ENTRIES)) == ENTRIES


def test_every_flipped_bit_is_seen() -> None:
    for at in range(len(GROUP)):
        for bit in (0, 3, 7):
            damaged = bytearray(GROUP)
            damaged[at] ^= 1 << bit
            with pytest.raises(GroupDamaged):
                read(bytes(damaged))


def test_every_truncation_is_seen() -> None:
    for size in range(len(GROUP)):
        with pytest.raises(GroupDamaged):
            read(GROUP[:size])


@given(st.binary(min_size=HEADER_SIZE, max_size=300))
@example(bytes(HEADER_SIZE))
def test_junk_is_refused_as_damage(junk: bytes) -> None:
    with pytest.raises(GroupDamaged):
        read(junk)


@given(st.data())
def test_junk_behind_a_right_header_is_refused_as_damage(data: st.DataObject) -> None:
    """A header that fits its length, and anything behind it: pieces of real entries among it."""
    pieces = st.sampled_from([*ENTRIES, b"PSE1", b"PSB1", bytes(8), struct.pack("<I", 8), struct.pack("<I", 1 << 31)])
    body = b"".join(data.draw(st.lists(pieces | st.binary(min_size=1, max_size=20), min_size=1, max_size=6)))
    count, checksum = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 2**32 - 1))
    header = GroupHeader(9, 7, 100, 1000, HEADER_SIZE + len(body), count, checksum, 0, 0)
    with pytest.raises(GroupDamaged):
        walk(encode_header(SALT, header) + body, header)


@pytest.mark.parametrize("length", [0, 8, 12, 16, 21, 32, 1 << 31], ids=str)
def test_an_entry_with_a_wrong_length_is_refused(length: int) -> None:
    """Although its checksum, and the header's, are right."""
    body = bytearray(encode_event(CORE, b"abc")[:-4])
    struct.pack_into("<I", body, 4, length)
    entry = bytes(body) + struct.pack("<I", crc32c(bytes(body)))
    header = GroupHeader(9, 7, 100, 1000, HEADER_SIZE + len(entry), 1, entries_checksum([entry]), 0, 1)
    with pytest.raises(GroupDamaged):
        walk(encode_header(SALT, header) + entry, header)
