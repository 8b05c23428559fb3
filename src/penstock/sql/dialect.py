"""The SQL dialect: DuckDB's, with a few changes."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import TokenType


class Dialect(DuckDB):
    """DuckDB's dialect without dollar-quoted strings: `$1,$2` would begin one. JSON paths are left as written: `'a.b'`
    is one name, `'$.a.b'` are two.
    """

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        return path

    class Tokenizer(DuckDB.Tokenizer):
        HEREDOC_STRINGS = []  # noqa: RUF012 - as sqlglot expects

    class Parser(DuckDBParser):
        """In `DATE '…'::TEXT`, DATE binds to the literal first. sqlglot's own parser does it the other way round."""

        def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
            found = super()._parse_type(parse_interval, fallback_to_identifier)
            return found if found is None or fallback_to_identifier else self._parse_column_ops(found)

        def _parse_column_ops(self, this: exp.Expr | None) -> exp.Expr | None:
            return this if isinstance(this, exp.Literal) and self._is_typed() else super()._parse_column_ops(this)

        def _is_typed(self) -> bool:
            """Whether the last literal is preceded by a type."""
            if self._index < 2 or self._tokens[self._index - 1].token_type is not TokenType.STRING:
                return False
            before = self._tokens[self._index - 2].token_type
            return before in self.TYPE_TOKENS or before in (TokenType.R_PAREN, TokenType.R_BRACKET)
