"""DuckDB's SQL as it is spoken here."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB


class Dialect(DuckDB):
    """Without text in dollar signs: `$1,$2` would be the beginning of one. And paths into JSON are left as they are
    written: `'a.b'` is one name, and `'$.a.b'` are two."""

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        return path

    class Tokenizer(DuckDB.Tokenizer):
        HEREDOC_STRINGS = []  # noqa: RUF012 - as sqlglot wants it
