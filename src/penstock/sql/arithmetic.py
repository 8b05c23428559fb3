"""Arithmetic where DuckDB differs from the protocol's specification and from the SQL reference of the original
implementation.

    a % 0, MOD(a, 0)    NULL
    CONCAT(a, NULL)     NULL, as with ||
    SUM beyond 64 bits  an error: the protocol cannot represent it (`values`)

1 / 0, SQRT(-1) and LN(0) are errors because of a setting of the engine (`engine`).
"""

from __future__ import annotations

from functools import reduce

from sqlglot import exp


def adapt(tree: exp.Expr) -> exp.Expr:
    """The query with these expressions replaced, in place."""
    for node in reversed(list(tree.find_all(exp.Mod, exp.Concat))):  # innermost first
        if isinstance(node, exp.Mod):
            node.set("expression", exp.Nullif(this=node.expression.copy(), expression=exp.Literal.number(0)))
        elif type(node) is exp.Concat:
            joined = _joined(node.expressions)
            tree = joined if node is tree else tree
            node.replace(joined)
    return tree


def _joined(parts: list[exp.Expr]) -> exp.Expr:
    if len(parts) == 1:
        return exp.cast(parts[0], "TEXT")
    return exp.Paren(this=reduce(_pipe, parts))


def _pipe(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.DPipe(this=left, expression=exp.Paren(this=right), safe=True)
