"""Expansion of `*` for a declared table if the statement also names a column that is not part of `*`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.sql.column_pruning import TableReference


def hide(source: TableReference, columns: Sequence[str]) -> None:
    """Exclude these columns of the source from the stars of its SELECT."""
    parent = source.node.parent
    select = parent.parent if isinstance(parent, exp.From | exp.Join) else None
    if not columns or not isinstance(select, exp.Select):
        return
    outputs: list[exp.Expr] = []
    for item in select.expressions:
        if isinstance(item, exp.Star) and select.args.get("joins") and not _merges(select):
            outputs += [
                exp.Column(this=item.copy(), table=exp.to_identifier(name, quoted=True)) for name in _of(select)
            ]
        else:
            outputs.append(item)
    for item in outputs:
        star = item.this if isinstance(item, exp.Column) else item
        if not isinstance(star, exp.Star):
            continue
        if isinstance(item, exp.Column) and item.table.lower() != source.alias:
            continue
        if isinstance(item, exp.Star) and select.args.get("joins"):
            continue  # with USING, which merges columns
        left_out = [*(star.args.get("except_") or ()), *(exp.to_identifier(name, quoted=True) for name in columns)]
        star.set("except_", left_out)
    select.set("expressions", outputs)


def _merges(select: exp.Select) -> bool:
    return any(join.args.get("using") for join in select.args["joins"])


def _of(select: exp.Select) -> list[str]:
    """The names of the tables in the SELECT, in order."""
    return [str(part.this.alias_or_name) for part in (select.args["from_"], *select.args["joins"])]
