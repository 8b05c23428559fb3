"""Column pruning: the streams that a statement reads, and which of their columns it may need.

Never too few columns, and rarely too many.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from penstock.broker.errors import QueryError, TableNotFound
from penstock.sql import functions

INFORMATION: Final = "information_schema"
INFORMATION_TABLES: Final = ("tables", "columns")


class RequiredColumns:
    """The columns that a statement may need of one table, or of one stream under several names."""

    __slots__ = ("_folded", "everything", "names", "sure")

    def __init__(self) -> None:
        self.everything = False
        self.names: set[str] = set()  # as written
        self.sure: set[str] = set()  # those not defined by the statement itself: some table must have them
        self._folded: set[str] = set()

    def add(self, name: str, *, sure: bool = True) -> None:
        self.names.add(name)
        if sure:
            self.sure.add(name)
        self._folded.add(name.lower())

    def merge(self, other: RequiredColumns) -> None:
        self.everything |= other.everything
        self.names |= other.names
        self.sure |= other.sure
        self._folded |= other._folded

    def named(self, column: str) -> bool:
        return column.lower() in self._folded

    def __contains__(self, column: str) -> bool:
        return self.everything or self.named(column)


class TableReference:
    """A table in a FROM clause that is neither a CTE nor a function."""

    __slots__ = ("name", "needs", "node", "schema")

    def __init__(self, node: exp.Table) -> None:
        self.node = node
        self.name = node.name
        self.schema = node.db.lower()
        self.needs = RequiredColumns()

    @property
    def alias(self) -> str:
        return str(self.node.alias_or_name).lower()


def sources(tree: exp.Expr, skip: exp.Table | None = None) -> list[TableReference]:
    """All tables, with the columns they need; `skip` is the target of an INSERT. Raises TableNotFound, QueryError."""
    found = []
    for node in tree.find_all(exp.Table):
        if node is skip or _is_function(node) or (not node.db and _is_cte(node)):
            continue
        if node.catalog or (node.db and (node.db.lower(), node.name.lower()) not in _INFORMATION_NAMES):
            raise TableNotFound(".".join(part.name for part in node.parts))
        if not node.name:
            raise QueryError("A table needs a name")
        found.append(TableReference(node))
    if found:
        _need(tree, found)
    return found


_INFORMATION_NAMES: Final = {(INFORMATION, name) for name in INFORMATION_TABLES}


def _is_function(node: exp.Table) -> bool:
    if isinstance(node.this, exp.Identifier):
        return False
    inner = node.this
    name = str(inner.name).lower() if isinstance(inner, exp.Anonymous) else ""
    if isinstance(inner, exp.GenerateSeries | exp.Explode | exp.Unnest | exp.Repeat) or name in functions.TABLE:
        return True
    raise QueryError(f"There is no table function '{name or type(inner).__name__.lower()}' that a statement may call")


def _is_cte(node: exp.Table) -> bool:
    """Whether the name refers to a CTE that is in scope at the node."""
    name = node.name.lower()
    child: exp.Expr = node
    at: exp.Expr | None = node.parent
    while at is not None:
        if isinstance(at, exp.With):
            earlier = at.expressions[: at.expressions.index(child)]
            if any(cte.alias.lower() == name for cte in earlier):
                return True
            if at.args.get("recursive") and child.alias.lower() == name and _recurs(child, node):
                return True
            child, at = at, at.parent
            if at is None:
                return False
        else:
            within = at.args.get("with_")
            if within is not None and any(cte.alias.lower() == name for cte in within.expressions):
                return True
        child, at = at, at.parent
    return False


def _recurs(cte: exp.Expr, node: exp.Table) -> bool:
    """Whether the CTE's own name refers to the CTE here: only in the second part of its UNION."""
    body = cte.this
    return isinstance(body, exp.Union) and _is_within(node, body.expression)


def _is_within(node: exp.Expr, tree: exp.Expr) -> bool:
    at: exp.Expr | None = node
    while at is not None and at is not tree:
        at = at.parent
    return at is tree


def fence(tree: exp.Expr) -> None:
    """Rename CTEs to names that no DuckDB object can have, after all other tables have been pointed at their views. So
    even if this module and DuckDB resolve a name differently, a name in the statement never refers to one of DuckDB's
    own tables.
    """
    for node in tree.find_all(exp.Table):
        if node.db or not isinstance(node.this, exp.Identifier):
            continue
        rename(node, f"{node.name}'")
    for cte in tree.find_all(exp.CTE):
        cte.args["alias"].set("this", exp.to_identifier(f"{cte.alias}'", quoted=True))


def rename(node: exp.Table, name: str) -> None:
    """Refer to another table, keeping the original name as an alias."""
    if not node.alias:
        columns = node.args["alias"].args.get("columns") if node.args.get("alias") else None
        node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name, quoted=True), columns=columns))
    node.set("this", exp.to_identifier(name, quoted=True))


# -- columns


def _need(tree: exp.Expr, found: list[TableReference]) -> None:
    table_aliases = {source.alias for source in found}
    aliases = set(table_aliases)
    aliases.update(str(node.alias).lower() for node in tree.find_all(exp.Subquery, exp.CTE, exp.Table) if node.alias)
    if _asks_for_all(tree):
        for source in found:
            source.needs.everything = True
        return
    for star in tree.find_all(exp.Star):
        for source in _under(star, found):
            source.needs.everything = True
    for source in found:
        if (alias := source.node.args.get("alias")) is not None and alias.columns:
            source.needs.everything = True  # columns are named by position
    defined = {node.alias for node in tree.find_all(exp.Alias)}
    defined.update(column.name for alias in tree.find_all(exp.TableAlias) for column in alias.columns)
    for node, qualifier, name in _names(tree):
        for source in found:
            if qualifier in aliases and qualifier != source.alias:
                if source.needs.everything and qualifier not in table_aliases:
                    source.needs.add(name, sure=False)  # it may come from a subquery
            elif qualifier in aliases and node.arg_key == "table":
                source.needs.add(name, sure=False)  # it is the table, unless there is a column of this name
            else:
                source.needs.add(name, sure=bool(qualifier) or name not in defined or not _is_output(node, source))
                if name.lower() == source.alias:
                    source.needs.everything = True  # a table name used as a value means its whole row


def _is_output(node: exp.Identifier, source: TableReference) -> bool:
    """Whether a name defined by the statement refers to that definition here, rather than to a column of this table:
    ORDER BY prefers it, and outside the scope of the table it can be nothing else.
    """
    key = node.parent.parent if node.parent is not None else None
    if isinstance(key, exp.Ordered) and key.parent is not None and isinstance(key.parent.parent, exp.Query):
        return True
    select = source.node.find_ancestor(exp.Select)
    return select is None or not _is_within(node, select)


def _asks_for_all(tree: exp.Expr) -> bool:
    if any(True for _ in tree.find_all(exp.Columns, exp.Pivot, exp.PositionalColumn)):
        return True
    return any(str(join.method).upper() == "NATURAL" for join in tree.find_all(exp.Join))


def _under(star: exp.Star, found: list[TableReference]) -> Iterator[TableReference]:
    """The tables whose columns this star expands to."""
    parent = star.parent
    if isinstance(parent, exp.Count):
        return
    if isinstance(parent, exp.Column) and parent.table:
        yield from (source for source in found if source.alias == parent.table.lower())
        return
    select = parent if isinstance(parent, exp.Select) else None
    for source in found:
        place = source.node.parent
        if (
            select is None
            or not isinstance(place, exp.From | exp.Join)
            or place.parent is select
            or not isinstance(place.parent, exp.Select)
        ):
            yield source


def _names(tree: exp.Expr) -> Iterator[tuple[exp.Identifier, str, str]]:
    """(node, qualifier in lower case or empty, name) of everything that may be a column."""
    for node in tree.find_all(exp.Identifier):
        parent = node.parent
        if isinstance(parent, exp.Column):
            parts = [part.name for part in parent.parts if isinstance(part, exp.Identifier)]
            if parent.this is node and len(parts) == 2:
                yield node, parts[0].lower(), parts[1]
            elif parent.this is node or len(parts) > 2:
                yield node, "", node.name  # with three parts, each may be the column
            else:
                yield node, node.name.lower(), node.name  # `a.b` is field b of column a, if there is no table a
        elif not isinstance(parent, exp.Table | exp.TableAlias | exp.Alias):
            yield node, "", node.name
