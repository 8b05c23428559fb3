"""Parameters and bodies of Unity Catalog's requests and replies, under its names."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

MAX_PAGE: Final = 100  # items; each takes a read of a table's log


class PageQuery(msgspec.Struct):
    """The query parameters of a list. 0 results: as many as the server likes."""

    max_results: Annotated[int, Meta(ge=0)] = 0
    page_token: str = ""

    @property
    def size(self) -> int:
        return min(self.max_results or MAX_PAGE, MAX_PAGE)


class SchemasQuery(PageQuery, kw_only=True):
    catalog_name: str


class TablesQuery(PageQuery, kw_only=True):
    catalog_name: str
    schema_name: str


class AnyQuery(msgspec.Struct):
    """Query parameters that make no difference here."""


class DeltaConfigQuery(msgspec.Struct):
    catalog: str


class TableOperation(enum.StrEnum):
    READ = "READ"
    READ_WRITE = "READ_WRITE"


class CredentialsQuery(msgspec.Struct):
    operation: TableOperation = TableOperation.READ


class CredentialsBody(msgspec.Struct):
    table_id: str
    operation: TableOperation = TableOperation.READ


class CatalogInfo(msgspec.Struct):
    name: str
    comment: str


class CatalogList(msgspec.Struct):
    catalogs: list[CatalogInfo]
    next_page_token: str | None = None


class SchemaInfo(msgspec.Struct):
    name: str
    catalog_name: str
    full_name: str
    properties: dict[str, str] = {}


class SchemaList(msgspec.Struct):
    schemas: list[SchemaInfo]
    next_page_token: str | None = None


class ColumnInfo(msgspec.Struct):
    name: str
    type_text: str  # in SQL
    type_json: str  # the column in Spark's JSON
    type_name: str
    position: int
    nullable: bool
    type_precision: int | None = None
    type_scale: int | None = None
    partition_index: int | None = None


class TableInfo(msgspec.Struct):
    name: str
    catalog_name: str
    schema_name: str
    storage_location: str
    table_id: str
    created_at: int  # ms since 1970
    updated_at: int  # of the description, not of the data; the same
    columns: list[ColumnInfo]
    table_type: str = "EXTERNAL"
    data_source_format: str = "DELTA"
    properties: dict[str, str] = {}


class TableList(msgspec.Struct):
    tables: list[TableInfo]
    next_page_token: str | None = None


class TemporaryCredentials(msgspec.Struct):
    """No credentials: tables in local files are read with the permissions of the reader's own process."""

    url: str  # the table's location
    expiration_time: int  # ms since 1970
    aws_temp_credentials: None = None
    azure_user_delegation_sas: None = None
    gcp_oauth_token: None = None


class ErrorDetail(msgspec.Struct, rename={"kind": "@type"}):
    reason: str
    metadata: dict[str, str] = {}
    kind: Literal["google.rpc.ErrorInfo"] = "google.rpc.ErrorInfo"


class ErrorBody(msgspec.Struct):
    """The body of every error reply, but for the part of the API for Delta tables."""

    error_code: str
    message: str
    details: list[ErrorDetail]


# -- the part for Delta tables


class DeltaConfig(msgspec.Struct, rename="kebab"):
    endpoints: list[str]
    protocol_version: str = "1.0"


class DeltaMetadata(msgspec.Struct, rename="kebab"):
    table_uuid: str
    location: str
    created_time: int
    updated_time: int
    columns: dict[str, Any]
    partition_columns: list[str]
    properties: dict[str, str] = {}
    table_type: str = "EXTERNAL"


class DeltaTable(msgspec.Struct, rename="kebab"):
    metadata: DeltaMetadata


class DeltaCredentials(msgspec.Struct, rename="kebab"):
    storage_credentials: list[Any] = []


class DeltaProblem(msgspec.Struct):
    message: str
    type: str
    code: int


class DeltaErrorBody(msgspec.Struct):
    error: DeltaProblem
