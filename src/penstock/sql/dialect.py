"""DuckDB's SQL as it is spoken here."""

from __future__ import annotations

from sqlglot.dialects.duckdb import DuckDB


class Dialect(DuckDB):
    """Without text in dollar signs: `$1,$2` would be the beginning of one."""

    class Tokenizer(DuckDB.Tokenizer):
        HEREDOC_STRINGS = []  # noqa: RUF012 - as sqlglot wants it
