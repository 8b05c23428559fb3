"""Values of one length in the bytes in which they arrived: the same as a list of them, to everybody who looks."""

from __future__ import annotations

import pytest

from penstock.equal_values import EqualValues


def block(values: list[bytes], before: bytes = b"", after: bytes = b"") -> EqualValues:
    data = before + b"".join(len(value).to_bytes(4) + value for value in values) + after
    return EqualValues.of(data, len(before), len(values), len(values[0]))


VALUES = [number.to_bytes(3) for number in range(200)]


def test_it_is_a_sequence_of_its_values() -> None:
    found = block(VALUES, b"before", b"after")
    assert len(found) == 200
    assert list(found) == VALUES
    assert found == VALUES and found == tuple(VALUES)
    assert found != VALUES[1:] and found != b"".join(VALUES)
    assert (found[0], found[199], found[-1], found[-200]) == (VALUES[0], VALUES[199], VALUES[199], VALUES[0])
    assert VALUES[70] in found and b"abc" not in found


@pytest.mark.parametrize("index", [200, -201])
def test_an_index_outside_of_it_is_refused(index: int) -> None:
    with pytest.raises(IndexError):
        block(VALUES)[index]


@pytest.mark.parametrize(
    "part", [slice(0, 64), slice(63, 65), slice(1, None), slice(-3, -1), slice(None, None, 7), slice(9, 3)]
)
def test_a_part_of_it_has_the_values_of_that_part(part: slice) -> None:
    found = block(VALUES, b"before", b"after")[part]
    assert list(found) == VALUES[part]
    assert len(found) == len(VALUES[part])


@pytest.mark.parametrize("count", [1, 63, 64, 65, 128, 200])
def test_joined_and_with_lengths(count: int) -> None:
    found = block(VALUES, b"before", b"after")[:count]
    assert isinstance(found, EqualValues)
    assert b"".join(found.pieces()) == b"".join(VALUES[:count])
    assert b"".join(found.blocks) == b"".join(b"\0\0\0\3" + value for value in VALUES[:count])
    assert found.size == 3 * count


@pytest.mark.parametrize("length", [4, 1000, 1001, 2047, 2048, 5000])
def test_many_bytes_of_several_blocks_are_the_same_joined(length: int) -> None:
    values = [number.to_bytes(4).ljust(length, b".") for number in range(90)]
    found = EqualValues.merged([block(values[at : at + 9], b"before", b"after") for at in range(0, 90, 9)])
    assert b"".join(found.pieces()) == b"".join(values)


def test_several_become_one() -> None:
    first, second = block(VALUES, b"before"), block(VALUES[:70], after=b"after")
    merged = EqualValues.merged([first, second])
    assert merged == VALUES + VALUES[:70]
    assert (len(merged), merged.size) == (270, 3 * 270)
    assert b"".join(merged.pieces()) == b"".join(VALUES + VALUES[:70])
    assert EqualValues.merged([first]) is first


@pytest.mark.parametrize("first", [0, 1, 69, 70, 71, 134, 139, 140, 150])
@pytest.mark.parametrize("count", [0, 1, 2, 69, 70, 71, 140, 500])
def test_a_part_of_several_has_the_values_of_that_part(first: int, count: int) -> None:
    values = (VALUES[:70], VALUES[70:140], VALUES[140:])
    found = EqualValues.merged([block(each, b"before", b"after") for each in values]).part(first, first + count)
    assert found == VALUES[first : first + count]
    assert len(found) == len(list(found)) == found.size // 3
    assert b"".join(found.blocks) == b"".join(b"\0\0\0\3" + value for value in VALUES[first : first + count])
    if found:
        assert (found[0], found[-1]) == (VALUES[first], VALUES[first + len(found) - 1])


def test_little_else_is_kept_in_memory() -> None:
    whole = block(VALUES, b"before", b"after")
    assert whole.compact() is whole, "most of its data are the values"
    few = whole[:50]
    assert isinstance(few, EqualValues)
    assert (few.held_bytes, few.compact().held_bytes) == (1411, 350)
    assert few.compact() == VALUES[:50]
    both = EqualValues.merged([few, few])
    assert both.compact().held_bytes == 700
    assert both.compact() == VALUES[:50] * 2


def test_it_does_not_reach_beyond_its_data() -> None:
    with pytest.raises(AssertionError):
        EqualValues.of(b"\0\0\0\3abc", 0, 2, 3)
    with pytest.raises(AssertionError):
        EqualValues.merged([block([b"abc"]), block([b"ab"])])


@pytest.mark.parametrize("length", [1, 3, 4, 6, 8, 100])
@pytest.mark.parametrize("count", [1, 2, 65])
def test_joined_whatever_their_length(length: int, count: int) -> None:
    values = [number.to_bytes(1) * length for number in range(count)]
    merged = EqualValues.merged([block(values, b"x"), block(values[::-1], after=b"yz")])
    assert b"".join(merged.pieces()) == b"".join(values + values[::-1])
