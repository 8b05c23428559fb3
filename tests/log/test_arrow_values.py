"""Arrow values made without pandas are the same as Arrow's own."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.log.arrow_values import integers, scalar, texts

MOMENT = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), MOMENT])
@pytest.mark.parametrize("values", [[], [0], [7, -1, 1 << 30]])
def test_integers(values: list[int], kind: pa.DataType) -> None:
    found = integers(values, kind)
    found.validate(full=True)
    assert found.equals(pa.array(values, kind))


@pytest.mark.parametrize("values", [[], [""], [None], ["a", None, "", "Ünï"], ["x"] * 20])
def test_texts(values: list[str | None]) -> None:
    found = texts(values)
    found.validate(full=True)
    assert found.equals(pa.array(values, pa.string()))


@pytest.mark.parametrize(
    ("value", "kind"),
    [(3, pa.int32()), (-3, pa.int64()), (5, MOMENT), ("t", pa.string()), (None, pa.string()), (None, pa.int64())],
)
def test_a_scalar(value: int | str | None, kind: pa.DataType) -> None:
    assert scalar(value, kind).equals(pa.scalar(value, kind))
