"""`spark.sql.catalog.penstock`: tables of topics in Spark's SQL, by the broker's Unity Catalog API, older versions too.

The catalog is that of Unity Catalog for Spark (`UCSingleCatalog`) where Maven has it, else a stand-in that is compiled
in the session. Everything else is the same: Delta's catalog and both clients of the API. The jars come from Maven
(`make build/delta-connector/.ready`); where they are not, this is skipped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess, penstock
from tests.spark.data_dir import DataDir
from tests.spark.java import needs_java
from tests.spark.test_delta_connector import JARS, needs_connector

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.schemas.schema import Schema, SchemaKind
from penstock.broker.security.access import ADMINISTRATOR
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.tables.location import table_ref
from penstock.workers.tables.typed_table import keep_up

STAND_IN = Path(__file__).parent / "delta_connector" / "StandIn.java"
ORDER = b'{"type": "object", "properties": {"id": {"type": "string"}, "customer": {"type": "string"}}}'
SECURITY = {"PENSTOCK_SECURITY__MODE": "on"}

PROGRAM = """
import json
import sys
from pathlib import Path

from penstock.spark import session

uri, reader, stranger, jars, source = sys.argv[1:]
real = any(Path(jars).glob("unitycatalog-spark*.jar"))
name = "io.unitycatalog.spark.UCSingleCatalog" if real else "io.unitycatalog.penstock.StandIn"
spark = session(
    "catalog",
    **{
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.jars": ",".join(str(jar) for jar in Path(jars).glob("*.jar")),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.penstock": name,
        "spark.sql.catalog.penstock.uri": uri,
        "spark.sql.catalog.penstock.token": reader,
        "spark.sql.catalog.default": name,
        "spark.sql.catalog.default.uri": uri,
        "spark.sql.catalog.default.token": stranger,
    },
)
if not real:
    java = spark._jvm.java.lang.Thread.currentThread()
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(java.getContextClassLoader())
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.cook(Path(source).read_text())
    java.setContextClassLoader(compiler.getClassLoader())


def rows(text):
    return [tuple(row) for row in spark.sql(text).collect()]


def refused(text):
    try:
        return rows(text)
    except Exception as error:
        return str(error)


def by_the_older_api(name):
    # What Unity Catalog's own client gets, and how Spark reads it: the way without deltaRestApi.enabled.
    unity, kinds = spark._jvm.io.unitycatalog.client, spark._jvm.org.apache.spark.sql.types.DataType
    provider = unity.auth.TokenProvider.create({"type": "static", "token": reader})
    client = unity.ApiClientBuilder.create().uri(uri).tokenProvider(provider).build()
    table = unity.api.TablesApi(client).getTable(name, True, True)
    wanted = unity.model.GenerateTemporaryTableCredential().tableId(table.getTableId())
    given = unity.api.TemporaryCredentialsApi(client).generateTemporaryTableCredentials(
        wanted.operation(unity.model.TableOperation.READ)
    )
    return {
        "format": table.getDataSourceFormat().getValue(),
        "same place": spark.read.format("delta").load(table.getStorageLocation()).count(),
        "same columns": [column.getName() for column in table.getColumns()] == spark.table(name).columns,
        "headers": [
            kinds.fromDDL(column.getTypeText()).simpleString()
            for column in table.getColumns()
            if column.getName() == "headers"
        ],
        "secret": given.getAwsTempCredentials() is not None,
    }


both = "SELECT o.id, CAST(c.value AS string) FROM penstock.default.orders_typed o"
found = {
    "schemas": rows("SHOW SCHEMAS IN penstock"),
    "tables": sorted(row[1] for row in rows("SHOW TABLES IN penstock.default")),
    "values": rows("SELECT CAST(value AS string) FROM penstock.default.orders ORDER BY offset"),
    "version": rows("SELECT count(*) FROM penstock.default.orders VERSION AS OF 0"),
    "columns": [row[:2] for row in rows("DESCRIBE penstock.default.orders_typed") if row[0] in ("id", "customer")],
    "history": sorted(row[0] for row in rows("DESCRIBE HISTORY penstock.default.orders")),
    "join": rows(f"{both} JOIN penstock.default.customers c ON CAST(c.key AS string) = o.customer ORDER BY 1"),
    "older": by_the_older_api("penstock.default.orders"),
    "dots": rows("SELECT count(*) FROM penstock.default.`page.views`"),
    "written": refused("CREATE TABLE penstock.default.mine (id string) USING delta"),
    "missing": refused("SELECT * FROM penstock.default.nothing"),
    "stranger": refused("SELECT * FROM default.default.orders"),
    "stranger's": sorted(row[1] for row in rows("SHOW TABLES IN default.default")),
}
print("found", json.dumps(found))
spark.stop()
"""


def tables(data_dir: DataDir) -> None:
    """Orders in two versions, with a typed table, their customers, and views of pages."""
    order = data_dir.create("orders")
    for name in ("customers", "page.views", "latest"):
        data_dir.create(name)
    data_dir.write("orders", 0, [b'{"id": "a", "customer": "c1"}'])
    data_dir.write("customers", 0, [b"Ada", b"Grace"], [b"c1", b"c2"])
    data_dir.fill("page.views", 0, 3)
    data_dir.to_tables()
    data_dir.write("orders", 0, [b'{"id": "b", "customer": "c2"}'])
    data_dir.to_tables()
    ref = table_ref(str(data_dir.root / "tables"), {}, *DEFAULT_SCOPE, "orders", order)
    keep_up(ref, [Schema("o", 1, SchemaKind.JSON, ORDER, 0, id=1)], {})
    data_dir.broker.topics.change(ADMINISTRATOR, DEFAULT_SCOPE, "orders", TopicSettings(schema="o"))
    data_dir.commit()


def key(data: Path, *topics: str) -> str:
    patterns = [part for topic in topics for part in ("--topic", topic)]
    done = penstock("keys", "add", "k", "--allow", "read,describe", *patterns, "--data-dir", str(data), **SECURITY)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_java
@needs_connector
@pytest.mark.spark
def test_a_catalog_of_tables(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path / "data")
    tables(data_dir)
    data_dir.close()
    with BrokerProcess(data_dir.root, **SECURITY).ready() as broker:
        reader, stranger = key(data_dir.root, "*"), key(data_dir.root, "customers")
        address = f"http://{broker.address('http')}"
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, address, reader, stranger, str(JARS), str(STAND_IN)],
            capture_output=True,
            text=True,
            timeout=500,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=tmp_path,
        )
    said = [line.removeprefix("found ") for line in done.stdout.splitlines() if line.startswith("found ")]
    assert said, done.stdout + done.stderr[-4000:]
    found = json.loads(said[0])
    assert "read-only" in found.pop("written") and "nothing" in found.pop("missing")
    assert "may not read 'orders'" in found.pop("stranger")
    assert found == {
        "schemas": [["default"]],
        "tables": ["customers", "orders", "orders_typed", "page.views"],
        "values": [['{"id": "a", "customer": "c1"}'], ['{"id": "b", "customer": "c2"}']],
        "version": [[1]],
        "columns": [["id", "string"], ["customer", "string"]],
        "history": [0, 1],
        "join": [["a", "Ada"], ["b", "Grace"]],
        "older": {
            "format": "DELTA",
            "same place": 2,
            "same columns": True,
            "headers": ["array<struct<key:string,value:binary>>"],
            "secret": False,
        },
        "dots": [[3]],
        "stranger's": ["customers"],
    }
