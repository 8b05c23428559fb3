"""SQL: statements over all topics, now and as of earlier positions. They use HTTP; results are an Arrow stream.

Every topic is a table; see `docs/sql.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.clients._core.requests import RequestSpec
from penstock.clients.http import requests

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ARROW: Final = "application/vnd.apache.arrow.stream"
_READS: Final = ("SELECT", "WITH", "VALUES", "SHOW", "DESCRIBE")


class Result:
    """The rows of a statement: iterate over them, or convert them to Arrow or pandas."""

    def __init__(self, stream: bytes) -> None:
        self._stream = stream
        self._table: pa.Table | None = None

    def arrow(self) -> pa.Table:
        """A `pyarrow.Table`."""
        if self._table is None:
            import pyarrow as pa

            with pa.ipc.open_stream(self._stream) as reader:
                self._table = reader.read_all()
        return self._table

    def pandas(self) -> pd.DataFrame:
        """A `pandas.DataFrame`."""
        return self.arrow().to_pandas()

    @property
    def columns(self) -> list[str]:
        return list(self.arrow().column_names)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """All rows, as tuples in the order of the columns."""
        table = self.arrow()
        return list(zip(*[column.to_pylist() for column in table.columns], strict=True)) if table.num_columns else []

    def dicts(self) -> list[dict[str, Any]]:
        """All rows as dicts, by column name."""
        return self.arrow().to_pylist()  # type: ignore[no-any-return]

    def scalar(self) -> Any:
        """The value of a result with exactly one row and one column."""
        ((value,),) = self.rows
        return value

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return int(self.arrow().num_rows)


def statement(text: str, params: Sequence[Any], at: int | datetime | None, timeout: float) -> RequestSpec[bytes]:
    """A statement as a request. Only statements that read are retried if the connection breaks."""
    words = text.split(None, 1)
    reads = bool(words) and words[0].upper() in _READS
    if isinstance(at, datetime):
        if not reads:
            raise ValueError("only what reads can look at a moment of the past")
        text, at = f"{text.rstrip().rstrip(';')} AS OF TIMESTAMP '{at.isoformat()}'", None
    body = {"sql": text, "params": list(params)} | ({} if at is None else {"position": at})
    return requests.raw("POST", "sql", body=body, accept=ARROW, idempotent=reads, timeout=timeout)
