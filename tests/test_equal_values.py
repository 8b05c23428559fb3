"""Values of one length in the bytes in which they arrived: the same as a list of them, to everybody who looks."""

from __future__ import annotations

import pytest

from penstock.equal_values import EqualValues


def block(values: list[bytes], before: bytes = b"", after: bytes = b"") -> EqualValues:
    data = before + b"".join(len(value).to_bytes(4) + value for value in values) + after
    return EqualValues(data, len(before), len(values), len(values[0]))


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
    assert found.joined() == b"".join(VALUES[:count])
    assert found.prefixed == b"".join(b"\0\0\0\3" + value for value in VALUES[:count])
    assert found.size == 3 * count


def test_blocks_of_one_length_become_one() -> None:
    first, second = block(VALUES, b"before"), block(VALUES[:70], after=b"after")
    merged = EqualValues.merged([first, second])
    assert merged == VALUES + VALUES[:70]
    assert merged.size == 3 * 270
    assert EqualValues.merged([first]) is first


def test_it_does_not_reach_beyond_its_data() -> None:
    with pytest.raises(AssertionError):
        EqualValues(b"\0\0\0\3abc", 0, 2, 3)
    with pytest.raises(AssertionError):
        EqualValues.merged([block([b"abc"]), block([b"ab"])])
