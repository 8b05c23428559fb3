"""The report of a run: one self-contained HTML file, generated from the pipeline's tables.

A project's `report.py` defines `report(pipeline)`, which returns a `Report`. A run writes it to `report.html` in its
directory when it ends, a continuous one every minute; `penstock pipeline report` writes it at any time.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Self

from penstock.spark.pipelines import charts
from penstock.spark.pipelines.project import Project, ProjectError
from penstock.spark.pipelines.tables import table_names, table_rows

if TYPE_CHECKING:
    import duckdb

FILE = "report.html"
CODE = "report.py"
WRITE_SECONDS = 60.0
MAX_ROWS = 200  # of a table in the report

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 760px; margin: 2rem auto; padding: 0 1rem; color: #223;
  background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem } small, svg { color: #667 } svg { max-width: 100% }
table { border-collapse: collapse; font-size: 13px } td, th { padding: .2rem .7rem; border-bottom: 1px solid #8884;
  text-align: left } td.number { text-align: right; font-variant-numeric: tabular-nums } .bad { color: #b5484d }
@media (prefers-color-scheme: dark) { body { color: #dde; background: #16181d } small, svg { color: #9aa } }
"""


class Report:
    """Sections, each from one query in DuckDB's SQL on the tables of a pipeline. A missing table is not an error: its
    section says so."""

    def __init__(self, pipeline: Project, title: str = "") -> None:
        self._pipeline = pipeline
        self._title = title or pipeline.name
        self._sections: list[str] = []
        self._tables = set(table_names(pipeline))

    def lines(self, title: str, sql: str, unit: str = "") -> Self:
        """Columns: x (a time or a number), then y; or x, the name of the line, and y."""

        def draw(_names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
            series: dict[str, list[tuple[Any, float]]] = {}
            for x, *name, y in rows:
                series.setdefault(str(name[0]) if name else "", []).append((x, float(y)))
            return charts.lines(series, unit)

        return self._section(title, sql, draw)

    def bars(self, title: str, sql: str, unit: str = "") -> Self:
        """Columns: a name and a number."""
        return self._section(
            title, sql, lambda _names, rows: charts.bars({str(name): float(value) for name, value in rows}, unit)
        )

    def table(self, title: str, sql: str) -> Self:
        return self._section(title, sql, _table)

    def html(self) -> str:
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        head = f"<h1>{escape(self._title)}</h1><small>{now}; times are UTC</small>"
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{escape(self._title)}</title><style>{STYLE}</style>{head}{''.join(self._sections)}</html>\n"
        )

    def _section(self, title: str, sql: str, draw: Callable[[Sequence[str], Sequence[Sequence[Any]]], str]) -> Self:
        try:
            body = draw(*self._query(sql))
        except _NotThere as error:
            body = f"<p><small>There is no table {escape(str(error))} yet.</small></p>"
        self._sections.append(f"<h2>{escape(title)}</h2>{body}")
        return self

    def _query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        import duckdb

        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            wanted = connection.get_table_names(sql)
            for name in sorted(wanted):
                if name not in self._tables:
                    raise _NotThere(name)
                connection.register(name, table_rows(self._pipeline, name))
            return _fetched(connection, sql)


class _NotThere(Exception):
    """A table that no run has created yet."""


def _fetched(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    found = connection.execute(sql)
    return [column[0] for column in found.description or ()], found.fetchall()


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MAX_ROWS])
    more = f"<p><small>and {len(rows) - MAX_ROWS} more</small></p>" if len(rows) > MAX_ROWS else ""
    return f"<table><tr>{head}</tr>{body}</table>{more}"


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str | bool):
        return f"<td>{escape(str('' if value is None else value))}</td>"
    if isinstance(value, datetime):
        return f"<td>{value:%Y-%m-%d %H:%M:%S}</td>"
    return f'<td class="number">{escape(f"{value:,}" if isinstance(value, int) else str(value))}</td>'


def report_file(project: Project) -> str:
    return os.path.join(project.local, FILE)


def has_report(project: Project) -> bool:
    return os.path.isfile(os.path.join(project.directory, CODE))


def write_report(project: Project) -> str:
    """Write the report; returns the path of the file. Raises ProjectError if the project has none."""
    path = os.path.join(project.directory, CODE)
    spec = importlib.util.spec_from_file_location("penstock_report", path)
    if not has_report(project) or spec is None or spec.loader is None:
        raise ProjectError(f"{path}: there is no such file; report(pipeline) in it returns the report")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.report(project).html()
    target = report_file(project)
    os.makedirs(project.local, exist_ok=True)
    with open(target + ".new", "w", encoding="utf-8") as stream:
        stream.write(text)
    os.replace(target + ".new", target)
    return target
