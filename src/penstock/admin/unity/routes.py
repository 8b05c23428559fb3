"""The routes: catalogs, schemas, tables and their credentials, and the part for Delta tables, which Delta's own client
uses instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.admin.unity.columns import columns, delta_columns
from penstock.admin.unity.errors import ForReading, NotVended, SchemaNotFound
from penstock.admin.unity.messages import (
    AnyQuery,
    CatalogInfo,
    CatalogList,
    CredentialsBody,
    CredentialsQuery,
    DeltaConfig,
    DeltaConfigQuery,
    DeltaCredentials,
    DeltaMetadata,
    DeltaTable,
    PageQuery,
    SchemaInfo,
    SchemaList,
    SchemasQuery,
    TableInfo,
    TableList,
    TableOperation,
    TablesQuery,
    TemporaryCredentials,
)
from penstock.admin.unity.tables import CATALOG, CatalogTable, CatalogTables
from penstock.broker.broker import Broker
from penstock.broker.errors import TableNotFound
from penstock.broker.runtime.executor import Deferred
from penstock.doors.http.replies import HttpReply, Outcome, PendingHttpReply, after_commit, json_reply
from penstock.doors.http.router import Request, Route
from penstock.log.errors import TableUnreadable
from penstock.log.tables.location import local_folder

if TYPE_CHECKING:
    from penstock.log.tables.layout import TableLayout

ROOT: Final = "/api/2.1/unity-catalog"
VALID_MS: Final = 3_600_000  # after which a reader asks for credentials again
COMMENT: Final = "Tables of topics"
NO_COLUMNS: Final = '{"type":"struct","fields":[]}'

T = TypeVar("T")


class UnityRoutes:
    def __init__(self, broker: Broker, clock: Callable[[], int]) -> None:
        """`clock`: µs since 1970."""
        self._broker = broker
        self._clock = clock
        self._tables = CatalogTables(broker)

    def routes(self) -> tuple[Route, ...]:
        delta = ROOT + "/delta/v1"
        one = delta + "/catalogs/{catalog}/schemas/{schema}/tables/{table}"
        table: tuple[tuple[str, str, Any, str, dict[str, Any]], ...] = (
            ("GET", ROOT + "/catalogs", self.catalogs, "The one catalog.", {"query": PageQuery}),
            ("GET", ROOT + "/catalogs/{name}", self.catalog, "One catalog.", {}),
            ("GET", ROOT + "/schemas", self.schemas, "Namespaces.", {"query": SchemasQuery}),
            ("GET", ROOT + "/schemas/{name}", self.schema, "One namespace.", {}),
            ("GET", ROOT + "/tables", self.tables, "Tables of a namespace.", {"query": TablesQuery}),
            ("GET", ROOT + "/tables/{name}", self.table, "One table.", {}),
            (
                *("POST", ROOT + "/temporary-table-credentials", self.credentials, "None are needed for files."),
                {"body": CredentialsBody, "changes": False},
            ),
            ("GET", delta + "/config", self.delta_config, "What there is for Delta.", {"query": DeltaConfigQuery}),
            ("GET", one, self.delta_table, "One table for Delta.", {}),
            ("GET", f"{one}/credentials", self.delta_credentials, "None for files.", {"query": CredentialsQuery}),
        )
        return tuple(
            Route(method, path, handler, summary, **({"query": AnyQuery} | more))
            for method, path, handler, summary, more in table
        )

    # -- catalogs and schemas

    def catalogs(self, request: Request) -> Outcome:
        self._tables.schemas(request, CATALOG)
        return self._shown(CatalogList([CatalogInfo(CATALOG, COMMENT)]))

    def catalog(self, request: Request) -> Outcome:
        name = request.names["name"]
        self._tables.schemas(request, name)
        return self._shown(CatalogInfo(name, COMMENT))

    def schemas(self, request: Request) -> Outcome:
        catalog = request.query.catalog_name
        names, token = _page(self._tables.schemas(request, catalog), str, request.query)
        return self._shown(SchemaList([_schema(catalog, name) for name in names], token))

    def schema(self, request: Request) -> Outcome:
        catalog, _, name = request.names["name"].replace("`", "").partition(".")
        self._require_schema(request, catalog, name)
        return self._shown(_schema(catalog, name))

    def _require_schema(self, request: Request, catalog: str, schema: str) -> None:
        if schema not in self._tables.schemas(request, catalog):
            raise SchemaNotFound(f"{catalog}.{schema}")

    # -- tables

    def tables(self, request: Request) -> Outcome:
        catalog, schema = request.query.catalog_name, request.query.schema_name
        self._require_schema(request, catalog, schema)
        found = self._tables.list(request, catalog, schema)
        page, token = _page(found, lambda table: table.name, request.query)

        def listed(layouts: list[TableLayout | None]) -> Outcome:
            both = zip(page, layouts, strict=True)
            return self._shown(TableList([_info(table, it) for table, it in both if it is not None], token))

        return Deferred(lambda: [_layout_in_list(table) for table in page], listed, executor=self._broker.scan_executor)

    def table(self, request: Request) -> Outcome:
        found = self._tables.named(request, request.names["name"])
        return self._described(found, lambda layout: self._shown(_info(found, layout)))

    def credentials(self, request: Request) -> Outcome:
        body: CredentialsBody = request.body
        found = self._tables.with_id(request.identity, body.table_id)
        self._require_no_credentials(found, body.operation)
        return self._shown(TemporaryCredentials(found.location, self._clock() // 1000 + VALID_MS))

    def _require_no_credentials(self, table: CatalogTable, operation: TableOperation) -> None:
        if operation is not TableOperation.READ:
            raise ForReading
        if local_folder(table.ref.url) is None:
            raise NotVended

    # -- the part for Delta tables

    def delta_config(self, request: Request) -> Outcome:
        self._tables.schemas(request, request.query.catalog)
        one = "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
        return self._shown(DeltaConfig([f"GET {one}", f"HEAD {one}", f"GET {one}/credentials"]))

    def delta_table(self, request: Request) -> Outcome:
        found = self._delta(request)

        def shown(layout: TableLayout) -> Outcome:
            fields = delta_columns(layout.schema)
            times = layout.created, layout.created
            return self._shown(
                DeltaTable(DeltaMetadata(found.id, found.location, *times, fields, layout.partition_columns))
            )

        return self._described(found, shown)

    def delta_credentials(self, request: Request) -> Outcome:
        self._require_no_credentials(self._delta(request), request.query.operation)
        return self._shown(DeltaCredentials())

    def _delta(self, request: Request) -> CatalogTable:
        names = request.names
        return self._tables.find(request, names["catalog"], names["schema"], names["table"])

    # -- replies

    def _described(self, table: CatalogTable, shown: Callable[[TableLayout], Outcome]) -> Outcome:
        def described(layout: TableLayout | None) -> Outcome:
            if layout is None:
                raise TableNotFound(table.name)
            return shown(layout)

        return Deferred(lambda: _layout(table), described, executor=self._broker.scan_executor)

    def _shown(self, value: object) -> HttpReply | PendingHttpReply:
        return after_commit(self._broker.pending_commit, json_reply(value))


def _layout(table: CatalogTable) -> TableLayout | None:
    """On any thread; reads the table's log."""
    from penstock.log.tables.layout import read_layout  # slow to import, and many brokers never need it

    return read_layout(table.ref)


def _layout_in_list(table: CatalogTable) -> TableLayout | None:
    """As `_layout`; a table that cannot be read is in the list, without columns."""
    from penstock.log.tables.layout import TableLayout

    try:
        return _layout(table)
    except TableUnreadable:
        return TableLayout(NO_COLUMNS, [], 0)


def _info(table: CatalogTable, layout: TableLayout) -> TableInfo:
    return TableInfo(
        table.name,
        table.catalog,
        table.schema,
        table.location,
        table.id,
        layout.created,
        layout.created,
        columns(layout.schema, layout.partition_columns),
    )


def _schema(catalog: str, name: str) -> SchemaInfo:
    return SchemaInfo(name, catalog, f"{catalog}.{name}")


def _page(found: Sequence[T], key: Callable[[T], str], query: PageQuery) -> tuple[Sequence[T], str | None]:
    """The requested page of items that are ordered by `key`, and the token of the next one."""
    rest = [item for item in found if key(item) > query.page_token] if query.page_token else found
    page = rest[: query.size]
    return page, key(page[-1]) if len(rest) > len(page) else None
