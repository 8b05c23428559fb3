"""One statement, from text to rows. Depends only on the catalog, not on where the streams come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from sqlglot import exp

from penstock.broker.errors import PositionAhead, QueryError, QueryInvalid, TableNotFound
from penstock.broker.queries.query import Rows, Value
from penstock.sql.arithmetic import adapt
from penstock.sql.catalog import Catalog, Stream, Typed
from penstock.sql.column_names import ColumnNames
from penstock.sql.column_pruning import INFORMATION, RequiredColumns, TableReference, fence, rename, sources
from penstock.sql.ddl import create, drop
from penstock.sql.engine import Engine, Engines
from penstock.sql.grammar import parse, warm
from penstock.sql.inferred_schema import InferredSchemas, identifier
from penstock.sql.insert import Insertion
from penstock.sql.limits import QueryLimits, Stop
from penstock.sql.names import resolve
from penstock.sql.relation import PointInTime, Relation
from penstock.sql.show import WORDS, information, show
from penstock.sql.star_expansion import hide
from penstock.sql.text import Text, prepare
from penstock.sql.typed_relation import TypedRelation
from penstock.sql.values import fetch

if TYPE_CHECKING:
    from penstock.sql.catalog import TypedStream

WARM_SECONDS = 300.0  # to initialize everything may take much longer than a statement may
SCHEMA = "streams"  # DuckDB's schema for streams: names in a statement can refer to nothing else


class StatementRuntime:
    """State shared by statements: engines, and the inferred schemas of streams. Thread-safe."""

    def __init__(self) -> None:
        self.engines = Engines()
        self.shapes = InferredSchemas()

    def warm(self, limits: QueryLimits) -> None:
        """Initialize everything that the first statement would have to wait for."""
        warm()
        with self.engines.one(limits, Stop(WARM_SECONDS)) as engine:
            engine.rows("SELECT json_type('{}')")


def run(
    catalog: Catalog,
    sql: str,
    params: Sequence[Value],
    position: int | None,
    limits: QueryLimits,
    *,
    runtime: StatementRuntime | None = None,
    stop: Stop | None = None,
) -> Rows:
    """The result of a statement. Raises QueryError and its subclasses, and the catalog's errors."""
    text = prepare(sql, params)
    if text.reason is not None:
        catalog.break_glass(text.reason)
    moment = _moment(catalog, text, position)
    past = text.position is not None or text.moment is not None or position is not None
    tree = None if text.first in WORDS else parse(text.sql)
    if past and tree is not None and not isinstance(tree, exp.Query | exp.Values):
        raise QueryError("Only a SELECT can be about another moment: what is written is written now")
    runtime = runtime or StatementRuntime()
    stop = stop or Stop(limits.seconds)
    with runtime.engines.one(limits, stop) as engine:
        return _Statement(catalog, engine, runtime.shapes, moment, limits, stop).run(text, tree, params)


def _moment(catalog: Catalog, text: Text, position: int | None) -> PointInTime:
    wanted = text.position if position is None else position
    if text.position is not None and wanted != text.position:
        raise QueryInvalid(f"The statement is AT OFFSET {text.position}, but it was asked for at position {position}")
    if wanted is None:
        return PointInTime(None, text.moment)
    head = catalog.head()
    if wanted > head:
        raise PositionAhead(wanted, head)
    return PointInTime(None if wanted == head else wanted, text.moment)


class _Statement:
    def __init__(
        self,
        catalog: Catalog,
        engine: Engine,
        shapes: InferredSchemas,
        moment: PointInTime,
        limits: QueryLimits,
        stop: Stop,
    ) -> None:
        self._catalog = catalog
        self._engine = engine
        self._shapes = shapes
        self._moment = moment
        self._limits = limits
        self._stop = stop

    def run(self, text: Text, tree: exp.Expr | None, params: Sequence[Value]) -> Rows:
        if tree is None:
            return show(self._catalog, self._relate, text.sql)
        if isinstance(tree, exp.Create):
            return create(self._catalog, self._engine, tree)
        if isinstance(tree, exp.Drop):
            return drop(self._catalog, tree)
        if isinstance(tree, exp.Insert):
            engine, limits = self._engine, self._limits
            return Insertion(self._catalog, engine, tree, params, limits, self._relate, self._prepared).run()
        names = ColumnNames(tree)
        rows = fetch(self._engine, self._prepared(tree), params, self._limits)
        return rows._replace(columns=names.apply(rows.columns))

    def _relate(self, stream: Stream) -> Relation | TypedRelation:
        if isinstance(stream, Typed):
            return TypedRelation(self._engine, cast("TypedStream", stream), self._moment, self._stop)
        return Relation(self._engine, stream, self._moment, self._shapes, self._stop)

    def _prepared(self, tree: exp.Expr) -> exp.Expr:
        """The query, rewritten to use DuckDB views of its streams."""
        tree = adapt(tree)
        if isinstance(tree, exp.Values):
            tree = exp.select("*").from_(exp.Subquery(this=tree))
        found = sources(tree)
        inner = [source for source in found if source.schema == INFORMATION]
        taken: set[str] = set()
        for table in {source.name.lower() for source in inner}:
            view = f"{INFORMATION}.{table}"
            taken.add(view)
            name = self._engine.register(information(self._catalog, self._relate, table))
            self._create_view(view, f"SELECT * FROM {name}")
            for source in inner:
                if source.name.lower() == table:
                    _point(source, view)
        user_tables = [source for source in found if source.schema != INFORMATION]
        streams = resolve(self._catalog, [source.name for source in user_tables])
        by_stream: dict[str, list[TableReference]] = {}
        for source in user_tables:
            if source.name not in streams:
                raise TableNotFound(source.name)
            by_stream.setdefault(streams[source.name].name, []).append(source)
        for name, using in by_stream.items():
            self._stop.check()
            relation = self._relate(streams[using[0].name])
            needs = RequiredColumns()
            for source in using:
                needs.merge(source.needs)
            view = name
            while view.lower() in taken:
                view += "'"
            taken.add(view.lower())
            self._create_view(view, relation.query(needs))
            shown = [column for column in relation.hidden() if needs.named(column)]
            for source in using:
                hide(source, shown)
                _point(source, view)
        fence(tree)
        return tree

    def _create_view(self, view: str, query: str) -> None:
        self._engine.execute(f"CREATE OR REPLACE VIEW {SCHEMA}.{identifier(view)} AS {query}")


def _point(source: TableReference, view: str) -> None:
    """Make a table in the statement refer to a view."""
    rename(source.node, view)
    source.node.set("db", exp.to_identifier(SCHEMA, quoted=True))
