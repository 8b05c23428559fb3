"""Tables of topics as clients of Unity Catalog's REST API find them: every route, its refusals, who may see what."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from deltalake import DeltaTable
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.http.peer import Answer, Peer
from tests.spark.data_dir import DataDir

from penstock.admin.api import Api
from penstock.admin.environment import Environment
from penstock.admin.health import HealthApplication
from penstock.admin.http import AdminApplication, refusal
from penstock.admin.unity.columns import columns, delta_columns
from penstock.admin.unity.tables import table_id
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.schemas.schema import Schema, SchemaKind
from penstock.broker.security.access import ADMINISTRATOR, ANONYMOUS, AccessPolicy, Grant, Identity, Permission
from penstock.broker.settings import BrokerSettings
from penstock.broker.tables.table import TablePolicy
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import Durability
from penstock.log.tables.location import table_ref
from penstock.workers.tables.typed_table import keep_up

ROOT = "/api/2.1/unity-catalog"
PARTS = {"type": "array", "items": {"type": "integer"}}
ORDER = json.dumps({"type": "object", "properties": {"id": {"type": "string"}, "parts": PARTS}}).encode()
HEADERS = "array<struct<key:string,value:binary>>"


class Catalog:
    """A client of one broker."""

    def __init__(self, data_dir: DataDir, identity: Identity = ANONYMOUS) -> None:
        broker = data_dir.broker
        health = HealthApplication(broker, Durability.SYNCED, identity)
        application = AdminApplication(Api(broker, Environment()), health)
        self.peer = Peer(cast(BrokerFixture, data_dir), application, identity, refusal=refusal)

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        answer = self.peer.ask(method, ROOT + path, body)
        assert answer.headers["content-type"] == "application/json"
        return answer

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer.body
        return answer.json

    def tables(self, more: str = "", schema: str = "default") -> list[str]:
        found = self.get(f"/tables?catalog_name=penstock&schema_name={schema}{more}")
        return [table["name"] for table in found["tables"]]

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        answer = self.ask(method, path, body)
        assert answer.json["message"]
        return answer.status, answer.json["error_code"]

    def refused_delta(self, path: str, method: str = "GET") -> tuple[int, str]:
        answer = self.ask(method, f"/delta/v1{path}")
        assert answer.json["error"]["message"] and answer.json["error"]["code"] == answer.status
        return answer.status, answer.json["error"]["type"]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[DataDir]:
    """`orders` has a table and a typed table, `page.views` a table, `empty` none."""
    root = tmp_path / "data"
    made = DataDir(root, BrokerSettings(tables=TablePolicy(True, str(root / "tables"))))
    for name in ("orders", "page.views", "empty"):
        made.create(name)
    made.write("orders", 0, [b'{"id": "a"}'])
    made.fill("page.views", 0, 2)
    made.to_tables()
    ref = table_ref(str(root / "tables"), {}, *DEFAULT_SCOPE, "orders", made.id("orders"))
    keep_up(ref, [Schema("o", 1, SchemaKind.JSON, ORDER, 0, id=1)], {})
    made.broker.topics.change(ADMINISTRATOR, DEFAULT_SCOPE, "orders", TopicSettings(schema="o"))
    made.commit()
    yield made
    made.close()


def test_catalogs_and_schemas(data_dir: DataDir) -> None:
    catalog = Catalog(data_dir)
    assert [it["name"] for it in catalog.get("/catalogs")["catalogs"]] == ["penstock"]
    assert catalog.get("/catalogs/penstock")["name"] == "penstock"
    schemas = catalog.get("/schemas?catalog_name=penstock")
    assert [it["name"] for it in schemas["schemas"]] == ["default"] and schemas["next_page_token"] is None
    assert catalog.get("/schemas/penstock.default")["full_name"] == "penstock.default"
    assert catalog.refused("GET", "/schemas/penstock.other") == (404, "NOT_FOUND")


def test_tables_and_where_they_are(data_dir: DataDir) -> None:
    catalog = Catalog(data_dir)
    assert catalog.tables() == ["orders", "orders_typed", "page.views"]
    table = catalog.get("/tables/penstock.default.orders")
    assert (table["table_type"], table["data_source_format"]) == ("EXTERNAL", "DELTA")
    assert (table["catalog_name"], table["schema_name"], table["name"]) == ("penstock", "default", "orders")
    location = urlsplit(table["storage_location"])
    assert location.scheme == "file" and DeltaTable(location.path).version() == 0
    known = {it["name"]: it for it in table["columns"]}
    assert [it["position"] for it in table["columns"]] == list(range(len(known)))
    assert known["partition"]["partition_index"] == 0 and known["value"]["partition_index"] is None
    assert (known["offset"]["type_text"], known["offset"]["type_name"]) == ("bigint", "LONG")
    assert (known["headers"]["type_text"], known["headers"]["type_name"]) == (HEADERS, "ARRAY")
    assert json.loads(known["key"]["type_json"])["type"] == "binary"
    listed = catalog.get("/tables?catalog_name=penstock&schema_name=default")["tables"]
    assert listed[0] == table
    typed = catalog.get("/tables/penstock.default.orders_typed?read_streaming_table_as_managed=true")
    assert typed["storage_location"] == table["storage_location"] + ".typed"
    assert {it["name"]: it["type_text"] for it in typed["columns"]}["parts"] == "array<bigint>"
    assert catalog.get("/tables/penstock.default.%60page.views%60")["name"] == "page.views"
    assert len({uuid.UUID(it["table_id"]) for it in listed}) == 3


def test_a_table_as_deltas_own_client_loads_it(data_dir: DataDir) -> None:
    catalog, one = Catalog(data_dir), "/delta/v1/catalogs/penstock/schemas/default/tables/orders"
    config = catalog.get("/delta/v1/config?catalog=penstock&protocol-versions=1.0")
    assert "GET /delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}" in config["endpoints"]
    plain, metadata = catalog.get("/tables/penstock.default.orders"), catalog.get(one)["metadata"]
    assert (metadata["table-uuid"], metadata["location"]) == (plain["table_id"], plain["storage_location"])
    assert (metadata["table-type"], metadata["partition-columns"]) == ("EXTERNAL", ["partition"])
    fields = {it["name"]: it["type"] for it in metadata["columns"]["fields"]}
    assert fields["offset"] == "long" and fields["headers"]["element-type"]["fields"][1]["type"] == "binary"
    assert catalog.ask("HEAD", one).status == 200
    assert catalog.get(f"{one}/credentials?operation=READ") == {"storage-credentials": []}
    assert catalog.refused_delta(f"{one[9:]}/credentials?operation=READ_WRITE") == (403, "PermissionDeniedException")
    assert catalog.refused_delta(one[9:].replace("orders", "nothing")) == (404, "NoSuchTableException")
    assert catalog.refused_delta(one[9:], "DELETE") == (405, "NotImplementedException")


def test_pages(data_dir: DataDir) -> None:
    catalog, path = Catalog(data_dir), "/tables?catalog_name=penstock&schema_name=default&max_results=2"
    first = catalog.get(path)
    assert len(first["tables"]) == 2
    assert catalog.tables(f"&max_results=2&page_token={first['next_page_token']}") == ["page.views"]
    assert catalog.tables("&max_results=0") == catalog.tables("&max_results=100000") == catalog.tables()
    assert catalog.refused("GET", path.replace("=2", "=-1")) == (400, "INVALID_ARGUMENT")


def test_a_table_that_cannot_be_read_hides_no_other(data_dir: DataDir) -> None:
    catalog = Catalog(data_dir)
    location = urlsplit(catalog.get("/tables/penstock.default.page.views")["storage_location"]).path
    for entry in Path(location, "_delta_log").glob("*.json"):
        entry.write_text("{")
    listed = catalog.get("/tables?catalog_name=penstock&schema_name=default")["tables"]
    assert [(it["name"], bool(it["columns"])) for it in listed] == [
        ("orders", True),
        ("orders_typed", True),
        ("page.views", False),
    ]
    assert catalog.refused("GET", "/tables/penstock.default.page.views") == (503, "UNAVAILABLE")


def test_credentials_are_not_needed_for_files_and_never_for_writing(data_dir: DataDir) -> None:
    catalog, path = Catalog(data_dir), "/temporary-table-credentials"
    for name in ("orders", "orders_typed"):
        given = {"table_id": catalog.get(f"/tables/penstock.default.{name}")["table_id"], "operation": "READ"}
        found = catalog.ask("POST", path, given).json
        assert found.pop("expiration_time") > 0 and found.pop("url").startswith("file:///")
        assert set(found.values()) == {None}
        assert catalog.refused("POST", path, given | {"operation": "READ_WRITE"}) == (403, "PERMISSION_DENIED")
    for wrong in (str(uuid.uuid4()), "x", str(uuid.UUID(int=uuid.UUID(given["table_id"]).int ^ 1 << 100))):
        assert catalog.refused("POST", path, given | {"table_id": wrong}) == (404, "NOT_FOUND")


def test_the_brokers_own_credentials_of_an_object_store_stay_with_it(data_dir: DataDir) -> None:
    secret = {"AWS_ACCESS_KEY_ID": "hush", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_REGION": "eu-north-1"}
    data_dir.broker.tables.catalog._policy = TablePolicy(True, "s3://bucket/tables", secret)
    catalog = Catalog(data_dir)
    ref = table_ref("s3://bucket/tables", {}, *DEFAULT_SCOPE, "orders", data_dir.id("orders"))
    given = {"table_id": table_id(ref, typed=False), "operation": "READ"}
    answer = catalog.ask("POST", "/temporary-table-credentials", given)
    assert answer.status == 409 and b"hush" not in answer.body and "their own" in answer.json["message"]


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/tables/penstock.default.nothing", (404, "NOT_FOUND")),
        ("GET", "/tables/penstock.default.empty", (404, "NOT_FOUND")),
        ("GET", "/tables/penstock.default.page.views_typed", (404, "NOT_FOUND")),
        ("GET", "/tables/penstock.default", (400, "INVALID_ARGUMENT")),
        ("GET", "/tables?catalog_name=penstock", (400, "INVALID_ARGUMENT")),
        ("GET", "/tables?catalog_name=penstock&schema_name=other", (404, "NOT_FOUND")),
        ("GET", "/tables/%20.default.orders", (400, "INVALID_ARGUMENT")),
        ("GET", "/volumes", (404, "NOT_FOUND")),
        ("POST", "/tables", (405, "UNIMPLEMENTED")),
        ("DELETE", "/tables/penstock.default.orders", (405, "UNIMPLEMENTED")),
        ("PATCH", "/schemas/penstock.default", (405, "UNIMPLEMENTED")),
        ("POST", "/temporary-table-credentials", (400, "INVALID_ARGUMENT")),
    ],
)
def test_what_is_refused(data_dir: DataDir, method: str, path: str, expected: tuple[int, str]) -> None:
    assert Catalog(data_dir).refused(method, path, {} if method == "POST" else None) == expected


def test_why_nothing_is_written(data_dir: DataDir) -> None:
    assert "read-only" in Catalog(data_dir).ask("POST", "/tables", {}).json["message"]


def test_who_may_see_what(data_dir: DataDir) -> None:
    """A table may be read by whoever may read its topic, and nobody learns whether another exists."""
    identifier = Catalog(data_dir).get("/tables/penstock.default.orders")["table_id"]
    both = frozenset({Permission.READ, Permission.DESCRIBE})
    grants = [Grant("reader", both, topic="page*"), Grant("viewer", frozenset({Permission.DESCRIBE}))]
    data_dir.broker.access.apply(AccessPolicy(True, grants))
    names = ("reader", "viewer", "nobody")
    reader, viewer, nobody = (Catalog(data_dir, Identity(name, tenant="default")) for name in names)
    assert reader.tables() == ["page.views"] and viewer.tables() == []
    denied = (401, "UNAUTHENTICATED")  # to who has not logged in; else 403
    for name in ("orders", "orders_typed", "nothing"):
        assert reader.refused("GET", f"/tables/penstock.default.{name}") == denied
        assert reader.refused_delta(f"/catalogs/penstock/schemas/default/tables/{name}")[0] == 401
    given = {"table_id": identifier, "operation": "READ"}
    assert reader.refused("POST", "/temporary-table-credentials", given) == (404, "NOT_FOUND")
    assert viewer.refused("GET", "/tables/penstock.default.orders") == denied
    for path in ("/catalogs", "/catalogs/penstock", "/schemas?catalog_name=penstock"):
        assert nobody.refused("GET", path) == denied
    assert nobody.refused_delta("/config?catalog=penstock") == (401, "NotAuthorizedException")


def test_a_tenant_has_its_own_catalog(data_dir: DataDir) -> None:
    """`penstock` is the caller's tenant; whoever may read several tenants names them."""
    for scope in (Scope("acme", "default"), Scope("acme", "a.b")):
        data_dir.broker.topics.create(ADMINISTRATOR, scope, "theirs", 1)
    data_dir.commit()
    anyone, of_acme = Catalog(data_dir), Catalog(data_dir, Identity("a", tenant="acme"))
    names = [it["name"] for it in of_acme.get("/schemas?catalog_name=penstock")["schemas"]]
    assert names == ["a.b", "default"] and of_acme.tables() == []
    assert [it["name"] for it in anyone.get("/schemas?catalog_name=acme")["schemas"]] == names
    assert of_acme.get("/schemas/penstock.a.b")["name"] == "a.b"
    assert anyone.get("/catalogs/acme")["name"] == "acme"
    assert anyone.refused("GET", "/catalogs/nobody") == (404, "NOT_FOUND")
    assert anyone.refused("GET", "/tables?catalog_name=nobody&schema_name=default") == (404, "NOT_FOUND")
    assert of_acme.refused("GET", "/tables/penstock.a.b.theirs") == (404, "NOT_FOUND")
    data_dir.broker.access.apply(AccessPolicy(True, [Grant("a", frozenset({Permission.READ, Permission.DESCRIBE}))]))
    assert of_acme.ask("GET", "/schemas?catalog_name=default").status == 401
    assert of_acme.get("/schemas?catalog_name=penstock")


def test_types_of_columns() -> None:
    nested = {"type": "struct", "fields": [{"name": "a b", "type": "short", "nullable": True, "metadata": {}}]}
    kind = {"type": "map", "keyType": "string", "valueType": nested, "valueContainsNull": True}
    fields = [
        {"name": "price", "type": "decimal(10,2)", "nullable": False, "metadata": {}},
        {"name": "places", "type": kind, "nullable": True, "metadata": {}},
        {"name": "count", "type": "integer", "nullable": True, "metadata": {}},
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    price, places, count = columns(schema, ["count"])
    assert (price.type_text, price.type_name, price.nullable) == ("decimal(10,2)", "DECIMAL", False)
    assert (price.type_precision, price.type_scale) == (10, 2)
    assert (places.type_text, places.type_name) == ("map<string,struct<`a b`:smallint>>", "MAP")
    assert (count.type_text, count.type_name, count.partition_index) == ("int", "INT", 0)
    assert delta_columns(schema)["fields"][1]["type"]["value-type"]["fields"][0]["type"] == "short"
