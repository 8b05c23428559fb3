"""Arrow arrays and scalars made of Python values, without `pa.array` and `pa.scalar`: these import pandas, if it is
installed, at their first call. That takes a second of processor time in every planner and worker of Spark that reads
the log. The broker's processes prevent it (`workers/import_guard`); in Spark's, other code may need pandas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def integers(values: Sequence[int] | np.ndarray[Any, np.dtype[np.int64]], kind: pa.DataType) -> pa.Array:
    """Without nulls; `kind` is an integer or a timestamp."""
    numbers = np.array(values, np.dtype(f"i{kind.bit_width // 8}"))
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def texts(values: Sequence[str | None]) -> pa.Array:
    encoded = [b"" if value is None else value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    valid = np.packbits(np.array([value is not None for value in values], bool), bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def scalar(value: int | str | None, kind: pa.DataType) -> pa.Scalar:
    """An integer, a timestamp as an integer, a text, or null."""
    if value is None:
        return pa.nulls(1, kind)[0]
    return (texts([value]) if isinstance(value, str) else integers([value], kind))[0]
