"""CREATE TABLE, INSERT and DROP TABLE."""

from __future__ import annotations

import json

import pytest
from tests.sql.ask import ask, rows
from tests.sql.memory import MemoryCatalog

from penstock.broker.errors import DuplicateKey, QueryError, TableExists, TableNotFound
from penstock.broker.queries.query import Timestamp

USERS = "CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT NOT NULL, born TIMESTAMP, score DOUBLE, ok BOOLEAN)"


@pytest.fixture
def catalog() -> MemoryCatalog:
    found = MemoryCatalog()
    ask(found, USERS)
    return found


def events(catalog: MemoryCatalog, name: str) -> list[object]:
    return [json.loads(record.value) for record in catalog.topics[name].records]


def test_create_insert_select(catalog: MemoryCatalog) -> None:
    found = ask(
        catalog,
        "INSERT INTO users VALUES (1, 'ann', '2020-01-01T00:00:00.123456789', 1.5, true), (2, 'bob', NULL, NULL, NULL)",
    )
    assert (found.columns, found.rows) == (["rows_affected", "log_offset"], [[2, catalog.position]])
    assert rows(catalog, "SELECT * FROM users ORDER BY id DESC") == [
        [2, "bob", None, None, None],
        [1, "ann", Timestamp(1_577_836_800_123_456_789), "1.5", True],
    ]
    assert events(catalog, "users")[1] == {"id": 2, "name": "bob", "born": None, "score": None, "ok": None}
    assert [record.key for record in catalog.topics["users"].records] == [b"1", b"2"]


def test_log_offset_is_a_position(catalog: MemoryCatalog) -> None:
    at = [ask(catalog, "INSERT INTO users (id, name) VALUES ($1, $2)", n, "x").rows[0][1] for n in range(3)]
    for count, position in enumerate(at, 1):
        assert isinstance(position, int)
        assert rows(catalog, "SELECT count(*) FROM users", at=position) == [[count]]


def test_parameters_are_inserted(catalog: MemoryCatalog) -> None:
    ask(
        catalog,
        "INSERT INTO users (name, born, id, ok) VALUES ($2,$3,$1,$4)",
        7,
        "it's",
        Timestamp(1_600_000_000_000_000_001),
        False,
    )
    assert rows(catalog, "SELECT * FROM users") == [[7, "it's", Timestamp(1_600_000_000_000_000_001), None, False]]


def test_rows_from_a_select(catalog: MemoryCatalog) -> None:
    catalog.add("source", '{"a": 10, "b": "x"}', '{"a": 11, "b": "y"}')
    assert rows(catalog, "INSERT INTO users (id, name) SELECT a, b FROM source")[0][0] == 2
    assert rows(catalog, "WITH s AS (SELECT a + 10 AS id, b AS name FROM source) SELECT count(*) FROM s") == [[2]]
    assert rows(catalog, "INSERT INTO users BY NAME SELECT b AS name, a + 10 AS id FROM source")[0][0] == 2
    assert rows(catalog, "SELECT id, name FROM users ORDER BY id") == [[10, "x"], [11, "y"], [20, "x"], [21, "y"]]
    assert rows(catalog, "INSERT INTO users (id, name) SELECT 1, 'x' WHERE false") == [[0, catalog.position]]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("INSERT INTO users (id, name) VALUES ('1', 'x')", "Column 'id' is BIGINT"),
        ("INSERT INTO users (id, name) VALUES (1.5, 'x')", "Column 'id' is BIGINT"),
        ("INSERT INTO users (id, name) VALUES (true, 'x')", "Column 'id' is BIGINT"),
        ("INSERT INTO users (id, name) VALUES (99999999999999999999, 'x')", "range"),
        ("INSERT INTO users (id, name) VALUES (1, 5)", "Column 'name' is VARCHAR"),
        ("INSERT INTO users (id, name, ok) VALUES (1, 'x', 1)", "Column 'ok' is BOOLEAN"),
        ("INSERT INTO users (id, name, born) VALUES (1, 'x', 'never')", "never"),
        ("INSERT INTO users (id, name, score) VALUES (1, 'x', 'nan'::DOUBLE)", "NaN"),
        ("INSERT INTO small (f) VALUES ('inf'::FLOAT)", "NaN"),
        ("INSERT INTO users (id, name) VALUES (1, NULL)", "'name' of table 'users' cannot be NULL"),
        ("INSERT INTO users (id) VALUES (1)", "'name' of table 'users' cannot be NULL"),
        ("INSERT INTO users (name) VALUES ('x')", "'id' of table 'users' cannot be NULL"),
        ("INSERT INTO users (id, nope) VALUES (1, 2)", "no column 'nope'"),
        ("INSERT INTO users (id, ID) VALUES (1, 2)", "twice"),
        ("INSERT INTO users (id, name) VALUES (1)", "1 values for 2 columns"),
        ("INSERT INTO users VALUES (1, 'a', NULL, NULL, NULL, NULL)", "6 values for 5 columns"),
        ("INSERT INTO users (id, name) VALUES (1, DEFAULT)", "DEFAULT"),
        ("INSERT INTO users DEFAULT VALUES", "name the values"),
        ("INSERT OR REPLACE INTO users (id, name) VALUES (1, 'x')", "append-only"),
        ("INSERT INTO users (id, name) VALUES (1, 'x') RETURNING id", "RETURNING"),
        ("INSERT INTO users (id, name) VALUES (1, 'x') ON CONFLICT DO NOTHING", "ON CONFLICT"),
    ],
)
def test_what_cannot_be_inserted(catalog: MemoryCatalog, sql: str, said: str) -> None:
    ask(catalog, "CREATE TABLE small (f FLOAT)")
    with pytest.raises(QueryError, match=said):
        ask(catalog, sql)
    assert events(catalog, "users") == events(catalog, "small") == []


def test_primary_keys_are_unique(catalog: MemoryCatalog) -> None:
    ask(catalog, "INSERT INTO users (id, name) VALUES (1, 'x'), (2, 'y')")
    for values in ("(2, 'z')", "(3, 'z'), (1, 'z')", "(4, 'z'), (4, 'z')"):
        with pytest.raises(DuplicateKey):
            ask(catalog, f"INSERT INTO users (id, name) VALUES {values}")
    assert len(events(catalog, "users")) == 2


def test_a_key_that_comes_in_between_is_seen(catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    append = MemoryCatalog.append
    others = iter([b'{"id": 8, "name": "other"}', b'{"id": 9, "name": "other"}'])

    def interfered(self: MemoryCatalog, name: str, *rest: object) -> int | None:
        self.add(name, next(others))
        return append(self, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryCatalog, "append", interfered)
    with pytest.raises(DuplicateKey, match="id = 9"):
        ask(catalog, "INSERT INTO users (id, name) VALUES (9, 'mine')")
    assert catalog.refreshed == 2


def test_a_key_of_two_columns() -> None:
    catalog = MemoryCatalog()
    ask(catalog, "CREATE TABLE t (a BIGINT, b TEXT, c TEXT, PRIMARY KEY (a, b))")
    ask(catalog, "INSERT INTO t VALUES (1, 'x', 'c'), (1, 'y', 'c')")
    assert [record.key for record in catalog.topics["t"].records] == [b'["1","x"]', b'["1","y"]']
    with pytest.raises(DuplicateKey):
        ask(catalog, "INSERT INTO t VALUES (1, 'y', NULL)")
    assert rows(catalog, "SHOW INDEXES FROM t") == [["t_pkey", "a,b"]]


# -- declared tables


def test_a_table_is_a_typed_projection_of_its_stream() -> None:
    catalog = MemoryCatalog()
    catalog.add(
        "t",
        '{"i": 1, "s": "x", "b": true, "d": 1.5, "t": "2020-01-01T00:00:00Z", "j": {"a": [1]}, "extra": 1}',
        '{"i": 1.5, "s": 5, "b": 1, "d": "x", "t": "2020-01-01T02:00:00+02:00", "j": 7}',
        '{"i": "12", "s": null, "b": "no", "d": 3, "t": 1577836800000000001}',
        '{"i": 99999999999999999999}',
        "no object",
        "{broken",
        "[1]",
        "{}",
    )
    ask(catalog, "CREATE TABLE t (i BIGINT, s TEXT, b BOOLEAN, d DOUBLE, t TIMESTAMP, j JSON)")
    year = 1_577_836_800_000_000_000
    assert rows(catalog, "SELECT * FROM t") == [
        [1, "x", True, "1.5", Timestamp(year), '{"a":[1]}'],
        [None, "5", None, None, Timestamp(year), "7"],
        [12, None, None, "3.0", Timestamp(year + 1), None],
        [None] * 6,
        [None] * 6,
    ]
    assert rows(catalog, "SELECT count(*) FROM t") == [[5]]
    with pytest.raises(QueryError, match="extra"):
        rows(catalog, "SELECT extra FROM t")


def test_moments_with_a_zone() -> None:
    catalog = MemoryCatalog()
    told = {
        "2020-01-01T02:00:00.123456789+02:00": 1_577_836_800_123_456_789,
        "2019-12-31T19:00:00.5-0500": 1_577_836_800_500_000_000,
        "2020-01-01T00:00:00.000000007Z": 1_577_836_800_000_000_007,
        "1970-01-01T00:59:59.999999999+01": -1,
        "1960-06-01 12:00:00.000000001+05:30": -302_462_999_999_999_999,
    }
    ask(catalog, "CREATE TABLE m (t TIMESTAMP)")
    for text in told:
        catalog.add("m", json.dumps({"t": text}))
        ask(catalog, "INSERT INTO m VALUES ($1)", text)
    expected = [[Timestamp(moment)] for moment in told.values() for _ in range(2)]
    assert rows(catalog, 'SELECT t FROM m ORDER BY "offset"') == expected
    with pytest.raises(QueryError):
        ask(catalog, "INSERT INTO m VALUES ('2020-13-01T00:00:00+02:00')")


def test_base_columns_are_there_when_they_are_named(catalog: MemoryCatalog) -> None:
    ask(catalog, "INSERT INTO users (id, name) VALUES (5, 'x')")
    catalog.add("other", '{"id": 5}')
    found = ask(catalog, 'SELECT *, "offset", key FROM users')
    assert found.columns == ["id", "name", "born", "score", "ok", "offset", "key"]
    assert found.rows == [[5, "x", None, None, None, 0, "5"]]
    joined = ask(catalog, 'SELECT * FROM users u JOIN other o ON u."offset" = o."offset"')
    assert joined.columns == ["id", "name", "born", "score", "ok", "offset", "timestamp", "key", "data", "id"]


def test_a_declared_column_may_be_called_like_a_base_column() -> None:
    catalog = MemoryCatalog()
    ask(catalog, "CREATE TABLE t (id BIGINT, data TEXT)")
    ask(catalog, "INSERT INTO t VALUES (1, 'mine')")
    assert rows(catalog, "SELECT data FROM t") == [["mine"]]
    assert rows(catalog, "SELECT * FROM t") == [[1, "mine"]]


def test_before_it_was_declared_a_stream_is_as_it_is() -> None:
    catalog = MemoryCatalog()
    before = catalog.add("t", '{"a": "1", "b": 2}')
    after = ask(catalog, "CREATE TABLE t (a BIGINT)").rows[0][1]
    assert isinstance(after, int)
    assert ask(catalog, "SELECT * FROM t", at=before).columns == ["offset", "timestamp", "key", "data", "a", "b"]
    assert ask(catalog, "SELECT * FROM t", at=after).columns == ["a"]
    created = ask(catalog, "CREATE TABLE u (a BIGINT)").rows[0][1]
    assert ask(catalog, "SELECT * FROM u", at=created if isinstance(created, int) else None).rows == []
    with pytest.raises(TableNotFound):
        ask(catalog, "SELECT * FROM u", at=after)
    assert rows(catalog, "SHOW TABLES", at=after) == [["t", 1]]


def test_dropping_takes_the_declaration_of_a_stream_away() -> None:
    catalog = MemoryCatalog()
    catalog.add("users", '{"name": "x", "id": 1}')
    ask(catalog, "CREATE TABLE users (id BIGINT)")
    assert ask(catalog, "DROP TABLE users").rows == [[0, catalog.position]]
    assert rows(catalog, "SELECT data->>'name', id FROM users") == [["x", 1]]
    with pytest.raises(QueryError, match="nothing to drop"):
        ask(catalog, "DROP TABLE users")
    assert ask(catalog, "DROP TABLE IF EXISTS users").rows == ask(catalog, "DROP TABLE IF EXISTS nope").rows
    ask(catalog, "CREATE TABLE users (name TEXT)")
    assert rows(catalog, "SELECT * FROM users") == [["x"]]


def test_a_table_that_was_dropped_is_gone_and_a_new_one_of_its_name_is_empty(catalog: MemoryCatalog) -> None:
    ask(catalog, "INSERT INTO users (id, name) VALUES (1, 'x')")
    ask(catalog, "DROP TABLE users")
    for sql in (
        "SELECT * FROM users",
        "DESCRIBE users",
        "SHOW INDEXES FROM users",
        "INSERT INTO users (id) VALUES (1)",
    ):
        with pytest.raises(TableNotFound):
            ask(catalog, sql)
    with pytest.raises(TableNotFound):
        ask(catalog, "DROP TABLE users")
    assert rows(catalog, "SHOW TABLES") == rows(catalog, "SELECT * FROM information_schema.tables") == []
    assert ask(catalog, "DROP TABLE IF EXISTS users").rows == ask(catalog, "DROP TABLE IF EXISTS nope").rows
    ask(catalog, "CREATE TABLE users (id BIGINT PRIMARY KEY, age BIGINT)")
    assert rows(catalog, "SELECT * FROM users") == [] and rows(catalog, "SHOW TABLES") == [["users", 2]]
    ask(catalog, "INSERT INTO users VALUES (1, 30)")  # the key is free
    assert rows(catalog, 'SELECT id, age, "offset" FROM users') == [[1, 30, 1]]


def test_drop_and_create_belong_to_the_past(catalog: MemoryCatalog) -> None:
    ask(catalog, "INSERT INTO users (id, name) VALUES (1, 'x')")
    first = catalog.position
    ask(catalog, "DROP TABLE users")
    gone = catalog.position
    ask(catalog, "CREATE TABLE users (name TEXT)")
    empty = catalog.position
    ask(catalog, "INSERT INTO users VALUES ('y')")
    assert rows(catalog, "SELECT * FROM users") == [["y"]]
    assert rows(catalog, "SELECT * FROM users", at=empty) == []
    for sql in ("SELECT * FROM users", "DESCRIBE users"):
        with pytest.raises(TableNotFound):
            ask(catalog, sql, at=gone)
    assert rows(catalog, "SHOW TABLES", at=gone) == []
    assert ask(catalog, "SELECT * FROM users", at=first).rows[0][:2] == [1, "x"]
    assert rows(catalog, "DESCRIBE users", at=first)[0] == ["id", "BIGINT", False, True]
    assert rows(catalog, "DESCRIBE users", at=empty) == [["name", "VARCHAR", True, False]]


def test_what_is_appended_to_a_tables_stream_is_shown_whatever_its_keys(catalog: MemoryCatalog) -> None:
    ask(catalog, "CREATE TABLE k (id BIGINT PRIMARY KEY, name TEXT NOT NULL)")
    ask(catalog, "INSERT INTO k VALUES (1, 'one')")
    catalog.add("k", '{"id": 1, "name": "again"}', '{"id": "no number"}', "no object", "[1]")
    assert rows(catalog, 'SELECT * FROM k ORDER BY "offset"') == [[1, "one"], [1, "again"], [None, None]]
    with pytest.raises(DuplicateKey):
        ask(catalog, "INSERT INTO k VALUES (1, 'more')")


def test_creating_twice(catalog: MemoryCatalog) -> None:
    with pytest.raises(TableExists, match="already exists"):
        ask(catalog, USERS)
    assert ask(catalog, USERS.replace("TABLE", "TABLE IF NOT EXISTS")).rows == [[0, catalog.position]]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("a BIGINT, A TEXT", "same name"),
        ("a NOPE", "no such type"),
        ("a BIGINT[]", "nested"),
        ("a STRUCT(x INT)", "nested"),
        ("a BIGINT DEFAULT 5", "not supported|only PRIMARY KEY"),
        ("a BIGINT UNIQUE", "not supported|only PRIMARY KEY"),
        ("a BIGINT, PRIMARY KEY (b)", "no column 'b'"),
        ("a BIGINT PRIMARY KEY, PRIMARY KEY (a)", "one PRIMARY KEY"),
        ("a BIGINT, CHECK (a > 1)", "not supported|nothing else"),
    ],
)
def test_what_cannot_be_declared(columns: str, said: str) -> None:
    catalog = MemoryCatalog()
    with pytest.raises(QueryError, match=said):
        ask(catalog, f"CREATE TABLE t ({columns})")
    assert catalog.topics == {}


def test_types_are_those_of_duckdb() -> None:
    catalog = MemoryCatalog()
    ask(catalog, "CREATE TABLE t (a INT, b STRING, c BYTES, d DECIMAL(10, 2), e TIMESTAMPTZ, f FLOAT, g UUID, h DATE)")
    assert [row[1] for row in rows(catalog, "DESCRIBE t")] == [
        *["INTEGER", "VARCHAR", "BLOB", "DECIMAL(10,2)", "TIMESTAMP WITH TIME ZONE", "FLOAT", "UUID", "DATE"]
    ]
    uuid = "7b5c3a51-8a5c-4b3f-9f5e-0d4c3b2a1f00"
    ask(
        catalog,
        f"INSERT INTO t VALUES (1, 'x', 'ab'::BLOB, 1.25, '2020-01-01 00:00:00+01', 0.1, '{uuid}', '2020-02-03')",
    )
    found = [1, "x", "YWI=", "1.25", Timestamp(1_577_833_200_000_000_000), "0.1", uuid, "2020-02-03"]
    assert rows(catalog, "SELECT * FROM t") == [found]


# -- streams as they are


def test_inserting_into_a_stream() -> None:
    catalog = MemoryCatalog()
    catalog.create("s")
    ask(catalog, "INSERT INTO s (a, b, t) VALUES (1, 'x', $1), (NULL, 'y', NULL)", Timestamp(1_600_000_000_000_000_001))
    ask(catalog, "INSERT INTO s (data, key) VALUES ('raw', 'k')")
    ask(catalog, "INSERT INTO s (data) VALUES ('\\xFF'::BLOB)")
    assert [record.value for record in catalog.topics["s"].records] == [
        b'{"a":1,"b":"x","t":"2020-09-13T12:26:40.000000001Z"}',
        b'{"a":null,"b":"y","t":null}',
        b"raw",
        b"\xff",
    ]
    assert [record.key for record in catalog.topics["s"].records] == [None, None, b"k", None]
    for columns, said in (
        ("offset, a", "set by the log"),
        ("data, a", "either"),
        ("key", "needs"),
        ("", "name the columns"),
    ):
        with pytest.raises(QueryError, match=said):
            ask(
                catalog,
                f"INSERT INTO s {f'({columns})' if columns else ''} VALUES (1{', 2' if ',' in columns else ''})",
            )
