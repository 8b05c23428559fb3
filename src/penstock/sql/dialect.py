"""DuckDB's SQL as it is spoken here."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import TokenType


class Dialect(DuckDB):
    """Without text in dollar signs: `$1,$2` would be the beginning of one. And paths into JSON are left as they are
    written: `'a.b'` is one name, and `'$.a.b'` are two."""

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        return path

    class Tokenizer(DuckDB.Tokenizer):
        HEREDOC_STRINGS = []  # noqa: RUF012 - as sqlglot wants it

    class Parser(DuckDBParser):
        """In `DATE '…'::TEXT` the text is a date before it is anything else. The parser that this one is made of has it
        the other way round."""

        def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
            found = super()._parse_type(parse_interval, fallback_to_identifier)
            return found if found is None or fallback_to_identifier else self._parse_column_ops(found)

        def _parse_column_ops(self, this: exp.Expr | None) -> exp.Expr | None:
            return this if isinstance(this, exp.Literal) and self._is_typed() else super()._parse_column_ops(this)

        def _is_typed(self) -> bool:
            """Whether there is a type before the literal that was read last."""
            if self._index < 2 or self._tokens[self._index - 1].token_type is not TokenType.STRING:
                return False
            before = self._tokens[self._index - 2].token_type
            return before in self.TYPE_TOKENS or before in (TokenType.R_PAREN, TokenType.R_BRACKET)
