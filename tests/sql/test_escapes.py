"""Nothing that a statement says reaches a file, the network, a setting, or anything else than its caller's streams."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest
from tests.sql.ask import LIMITS, ask, rows
from tests.sql.memory import MemoryCatalog

from penstock.broker.errors import QueryError, QueryInvalid, QueryTooLarge, TableNotFound
from penstock.sql import column_pruning
from penstock.sql.engine import Engine
from penstock.sql.grammar import parse, render
from penstock.sql.limits import QueryLimits, Stop

REFUSED = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_csv_auto('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_parquet('x')",
    "SELECT * FROM parquet_scan('x')",
    "SELECT * FROM read_json('x')",
    "SELECT * FROM read_ndjson_objects('x')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM '/etc/passwd'",
    'SELECT * FROM "/etc/passwd"',
    "SELECT * FROM 'https://example.com/x.csv'",
    "FROM '/etc/passwd'",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM python_scan_all_frames()",
    "SELECT * FROM catalog",
    "SELECT getenv('HOME')",
    "SELECT GETENV('HOME')",
    "SELECT \"getenv\"('HOME')",
    "SELECT main.getenv('HOME')",
    "SELECT system.main.getenv('HOME')",
    "SELECT 'HOME'.getenv()",
    "WITH getenv(a) AS (SELECT 1) SELECT getenv('HOME') FROM getenv",
    "SELECT list_transform(['HOME'], lambda x: getenv(x))",
    "SELECT list_aggregate([1], 'sum'), getvariable('x')",
    "SELECT current_setting('memory_limit')",
    "SELECT current_user",
    "SELECT current_schema()",
    "SELECT current_database()",
    "SELECT version()",
    "SELECT pg_sleep(1)",
    "SELECT sleep_ms(1)",
    "SELECT nextval('s')",
    "SELECT query('SELECT 1')",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('t')",
    "SELECT write_log('x')",
    "SELECT parse_path('x')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_tables()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_logs",
    "SELECT * FROM pragma_table_info('t')",
    "SELECT * FROM pragma_database_list()",
    "SELECT * FROM test_all_types()",
    "SELECT * FROM seq_scan('x')",
    "SELECT * FROM information_schema.schemata",
    "SELECT * FROM pg_catalog.pg_tables",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM main.t",
    "SELECT * FROM memory.main.t",
    "SELECT * FROM streams.t",
    "SELECT * FROM source_0",
    "WITH RECURSIVE source_0 AS (SELECT * FROM source_0) SELECT * FROM source_0, t",
    "WITH RECURSIVE pg_settings AS (SELECT * FROM pg_settings) SELECT * FROM pg_settings",
    "WITH RECURSIVE pg_settings AS (SELECT 1 INTERSECT SELECT count(*) FROM pg_settings) SELECT * FROM pg_settings",
    "WITH RECURSIVE a AS (SELECT 1), pg_settings AS (SELECT * FROM (SELECT * FROM pg_settings)) FROM pg_settings",
    "WITH a AS (SELECT * FROM pg_settings), pg_settings AS (SELECT 1) SELECT * FROM a",
    "SELECT * FROM (WITH pg_settings AS (SELECT 1) SELECT * FROM pg_settings), pg_settings",
    "SELECT * FROM temp.main.source_0",
    "COPY t TO '/tmp/x'",
    "COPY (SELECT 1) TO '/tmp/x'",
    "COPY t FROM '/tmp/x'",
    "EXPORT DATABASE '/tmp/x'",
    "IMPORT DATABASE '/tmp/x'",
    "ATTACH '/tmp/x.db'",
    "DETACH x",
    "USE x",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET threads = 100",
    "SET enable_external_access = true",
    "RESET threads",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "CHECKPOINT",
    "VACUUM",
    "BEGIN",
    "PREPARE x AS SELECT 1",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE SELECT * FROM t",
    "CREATE VIEW v AS SELECT 1",
    "CREATE TABLE u AS SELECT 1",
    "CREATE OR REPLACE TABLE u (a INT)",
    "CREATE TEMP TABLE u (a INT)",
    "CREATE MACRO m(a) AS a",
    "CREATE FUNCTION m(a) AS TABLE SELECT 1",
    "CREATE SCHEMA s",
    "CREATE SEQUENCE s",
    "CREATE TYPE x AS ENUM ('a')",
    "CREATE SECRET s (TYPE s3)",
    "CREATE INDEX i ON t (a)",
    "DROP VIEW v",
    "DROP SCHEMA streams CASCADE",
    "SELECT * INTO u FROM t",
    "SELECT * FROM t FOR UPDATE",
    "SELECT * FROM t AT (VERSION => 1)",
    "SUMMARIZE t",
    "DESCRIBE SELECT getenv('HOME')",
    "SHOW DATABASES",
    "SELECT * FROM (SHOW TABLES)",
    "SELECT * FROM (DESCRIBE t)",
    "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
    "WITH x AS (INSERT INTO t VALUES (1)) SELECT * FROM x",
    "SELECT 1; DROP TABLE t",
    "SELECT * FROM t; --",
    "SELECT COLUMNS(x -> getenv(x)) FROM t",
    "SELECT repeat('x', 1000000000)",
    "SELECT repeat('x', \"offset\") FROM t",
    "SELECT repeat(repeat('x', 10000), 10000)",
    "SELECT lpad('x', 1000000000, 'y')",
    "SELECT rpad(repeat('x', 9), 5 * 5, 'y')",
    "SELECT len(range(200000000))",
    "SELECT len(generate_series(0, 1000000000))",
    "SELECT bitstring('1', 2000000000)",
    "SELECT list_resize([1], 200000000)",
    "SELECT format('{:>1000000000}', 'x')",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_an_escape_is_refused(sql: str) -> None:
    catalog = MemoryCatalog()
    catalog.add("t", '{"a": 1}')
    if sql == "SELECT * FROM t; --":
        assert len(rows(catalog, sql)) == 1  # nothing follows
        return
    with pytest.raises(QueryError) as raised:
        ask(catalog, sql)
    assert "root:" not in str(raised.value)
    assert catalog.topics["t"].declarations.declared is None and len(catalog.topics["t"].records) == 1


@pytest.mark.parametrize(
    "word",
    [
        "UPDATE t SET a = 1",
        "DELETE FROM t",
        "TRUNCATE t",
        "MERGE INTO t USING u ON a WHEN MATCHED THEN DELETE",
        "ALTER TABLE t ADD COLUMN b INT",
    ],
)
def test_the_log_is_append_only(word: str) -> None:
    catalog = MemoryCatalog()
    catalog.add("t", '{"a": 1}')
    with pytest.raises(QueryError, match="append-only") as raised:
        ask(catalog, word)
    assert type(raised.value) is QueryError


@pytest.mark.parametrize(
    "sql", ["SELEC 1", "SELECT FROM WHERE", "SELECT 1 +", "SELECT (1", "hello", "1 + 1", "SELECT * FROM", "INSERT INTO"]
)
def test_what_is_no_sql(sql: str) -> None:
    with pytest.raises(QueryInvalid):
        ask(MemoryCatalog(), sql)


def test_a_parse_error_names_the_place() -> None:
    with pytest.raises(QueryInvalid, match="line 2, column"):
        ask(MemoryCatalog(), "SELECT 1\nFROM t WHERE )")


@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH '{0}/x.db'",
        "COPY (SELECT 1) TO '{0}/x.csv'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SET threads = 4",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SELECT * FROM outside",
    ],
)
def test_the_second_wall_holds_alone(sql: str, tmp_path: Path) -> None:
    outside = [1]  # a local variable, which DuckDB could find in the frames above
    engine = Engine(QueryLimits())
    try:
        engine.begin(Stop(10))
        with pytest.raises(QueryError):
            engine.rows(sql.format(tmp_path))
        assert list(tmp_path.iterdir()) == [] and outside
    finally:
        engine.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 50 + "1" + ")" * 50,
        "SELECT " + "abs(" * 49 + "1" + ")" * 49,
        "SELECT " + "EXISTS (SELECT " * 49 + "1" + ")" * 49,
        "SELECT * FROM " + "(SELECT * FROM " * 48 + "t" + ")" * 48,
        "SELECT " + "{'a': " * 49 + "1" + "}" * 49,
        "SELECT a" + "[1]" * 50,
        "SELECT 1" + "::INT" * 3_000,
        "SELECT " + ".".join(["a"] * 4_000),
        "SELECT " + " + ".join(["1"] * 4_000),
        "SELECT " + " AND ".join(["a = 1"] * 1_500),
        "SELECT a" + " IS NULL" * 3_000,
        "SELECT " + "a -> " * 4_000 + "1",
        " UNION ALL ".join(["SELECT 1"] * 2_000),
        "SELECT " + "INTERVAL " * 4_000,
        "SELECT " + "a BETWEEN " * 4_000,
    ],
    ids=range(15),
)
def test_what_stalls_parsers_is_answered_soon(sql: str) -> None:
    begin = time.process_time()
    with suppress(QueryError):
        render(parse(sql))
    assert time.process_time() - begin < 5


def test_a_result_has_an_end() -> None:
    few = LIMITS._replace(rows=10)
    assert len(ask(MemoryCatalog(), "SELECT * FROM range(10)", limits=few).rows) == 10
    with pytest.raises(QueryTooLarge, match="more than 10 rows"):
        ask(MemoryCatalog(), "SELECT * FROM range(11)", limits=few)
    with pytest.raises(QueryTooLarge, match="bytes"):
        ask(MemoryCatalog(), "SELECT repeat('x', 1000) FROM range(100)", limits=LIMITS._replace(result_bytes=50_000))


def test_time_is_limited() -> None:
    begin = time.process_time()
    with pytest.raises(QueryTooLarge, match=r"longer than the 0\.3 s"):
        ask(
            MemoryCatalog(),
            "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b",
            limits=LIMITS._replace(seconds=0.3),
        )
    assert time.process_time() - begin < 10
    assert rows(MemoryCatalog(), "SELECT 1") == [[1]]


def test_memory_is_limited() -> None:
    small = LIMITS._replace(memory_bytes=32 << 20)
    with pytest.raises(QueryTooLarge, match="memory"):
        ask(MemoryCatalog(), "SELECT list(range || 'some text that is long enough') FROM range(5000000)", limits=small)


def test_no_setting_of_the_engine_lets_anything_in() -> None:
    engine = Engine(QueryLimits())
    names = [
        "enable_external_access",
        "lock_configuration",
        "autoload_known_extensions",
        "autoinstall_known_extensions",
        "allow_community_extensions",
        "allow_unsigned_extensions",
        "python_enable_replacements",
    ]
    found = [engine.rows(f"SELECT current_setting('{name}')")[0][0] for name in names]
    assert found == [False, True, False, False, False, False, False]
    engine.close()
    assert duckdb.__version__


@pytest.mark.parametrize("name", ["pg_settings", "duckdb_views", "sqlite_master", "source_0"])
def test_a_cte_never_means_a_table_of_the_engine(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Even if it were thought to be in sight where it is not."""
    catalog = MemoryCatalog()
    catalog.add("t", '{"a": 1}')
    assert rows(catalog, f"WITH {name} AS (SELECT 7 AS one) SELECT {name}.one FROM {name}") == [[7]]
    monkeypatch.setattr(column_pruning, "_recurs", lambda *_: True)
    with pytest.raises(QueryError, match=r"does not exist|Circular"):
        ask(catalog, f"WITH RECURSIVE {name} AS (SELECT * FROM {name}) SELECT * FROM {name}, t")


def test_large_rows_are_taken_a_few_at_a_time() -> None:
    engine = Engine(QueryLimits())
    engine.begin(Stop(10))
    pages = [len(page) for page in engine.pages("SELECT * FROM range(3000)", (), 1_000)]
    engine.close()
    assert sum(pages) == 3_000 and pages[0] < 50 and max(pages) == 1_000


def test_others_streams_are_not_there() -> None:
    catalog = MemoryCatalog()
    catalog.add("mine", "x")
    for sql in (
        "SELECT * FROM theirs",
        "SELECT * FROM mine, theirs",
        "DESCRIBE theirs",
        "INSERT INTO theirs (a) VALUES (1)",
        "DROP TABLE theirs",
    ):
        with pytest.raises(TableNotFound):
            ask(catalog, sql)
