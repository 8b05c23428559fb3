"""Statements over streams, as a caller sees them."""

from __future__ import annotations

import threading
import time

import pytest
from tests.sql.ask import LIMITS, ask, rows
from tests.sql.memory import MemoryCatalog

from penstock.broker.errors import PositionAhead, PositionGone, QueryError, QueryInvalid, TableNotFound
from penstock.broker.queries.query import Timestamp
from penstock.sql.limits import QueryLimits, Stop
from penstock.sql.run import StatementRuntime, run


@pytest.fixture
def catalog() -> MemoryCatalog:
    found = MemoryCatalog()
    found.add(
        "clicks",
        '{"kind": "a", "n": 1, "x": 1.5, "ok": true, "in": {"y": 1}}',
        '{"kind": "b", "n": 2, "x": 2, "mixed": "text", "ok": false}',
        '{"kind": "a", "n": null, "mixed": 3}',
        "[1, 2]",
        "plain text",
        "{broken",
        '\n {"kind": "c", "n": -7, "data": "not the event", "userId": 5}',
    )
    return found


def test_the_session_of_the_specification() -> None:
    catalog = MemoryCatalog()
    catalog.add("events", "event1", "event2")
    found = ask(catalog, "SELECT COUNT(*) as count FROM events")
    assert (found.columns, found.rows) == (["count"], [[2]])
    assert catalog.reads == []  # what can be counted is not read


def test_a_stream_without_objects_has_four_columns() -> None:
    catalog = MemoryCatalog()
    catalog.add("t", "text", b"\xff\x00", "ünï", key=b"k")
    found = ask(catalog, "SELECT * FROM t")
    assert found.columns == ["offset", "timestamp", "key", "data"]
    assert found.rows == [
        [0, Timestamp(1_000_001_000), "k", "text"],
        [1, Timestamp(1_000_002_000), "k", "/wA="],
        [2, Timestamp(1_000_003_000), "k", "ünï"],
    ]


def test_fields_of_objects_are_columns(catalog: MemoryCatalog) -> None:
    found = ask(catalog, "SELECT * FROM clicks")
    assert found.columns == ["offset", "timestamp", "key", "data", "in", "kind", "mixed", "n", "ok", "userId", "x"]
    assert [row[4:] for row in found.rows] == [
        ['{"y":1}', "a", None, 1, True, None, "1.5"],
        [None, "b", "text", 2, False, None, "2.0"],
        [None, "a", "3", None, None, None, None],
        [None] * 7,
        [None] * 7,
        [None] * 7,
        [None, "c", None, -7, None, 5, None],
    ]
    assert [row[0] for row in found.rows] == list(range(7))
    assert found.rows[6][3] == '\n {"kind": "c", "n": -7, "data": "not the event", "userId": 5}'


def test_types_are_told(catalog: MemoryCatalog) -> None:
    assert {row[0]: row[1] for row in rows(catalog, "DESCRIBE clicks")} == {
        "offset": "BIGINT",
        "timestamp": "TIMESTAMP_NS",
        "key": "VARCHAR",
        "data": "VARCHAR",
        "in": "JSON",
        "kind": "VARCHAR",
        "mixed": "VARCHAR",
        "n": "BIGINT",
        "ok": "BOOLEAN",
        "userId": "BIGINT",
        "x": "DOUBLE",
    }
    assert rows(catalog, "SHOW TABLES") == [["clicks", 11]]
    assert rows(catalog, "SHOW COLUMNS FROM clicks") == rows(catalog, 'DESCRIBE "clicks"')
    assert rows(catalog, "SHOW INDEXES FROM clicks") == []
    assert rows(catalog, "SELECT table_name FROM information_schema.tables") == [["clicks"]]
    said = "SELECT data_type FROM information_schema.columns WHERE table_name = 'clicks' AND column_name = 'n'"
    assert rows(catalog, said) == [["BIGINT"]]


def test_large_streams_are_not_read_to_list_them(catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sql.relation.SMALL", 6)
    shop = StatementRuntime()
    assert ask(catalog, "SHOW TABLES", shop=shop).rows == [["clicks", 4]]
    assert catalog.reads == []
    ask(catalog, "DESCRIBE clicks", shop=shop)
    assert ask(catalog, "SHOW TABLES", shop=shop).rows == [["clicks", 11]]


def test_names_are_found_in_any_case(catalog: MemoryCatalog) -> None:
    assert rows(catalog, "SELECT USERID FROM Clicks WHERE UserId > 1") == [[5]]
    assert ask(catalog, "SELECT userId FROM clicks LIMIT 1", shop=StatementRuntime()).columns == ["userId"]
    catalog.add("CLICKS", "other")
    assert rows(catalog, "SELECT count(*) FROM clicks") == [[7]]
    assert rows(catalog, 'SELECT a.data FROM "CLICKS" a, clicks b WHERE b.n = 1') == [["other"]]
    with pytest.raises(QueryError, match="write it exactly"):
        rows(catalog, "SELECT count(*) FROM Clicks")


def test_only_what_is_needed_is_read(catalog: MemoryCatalog) -> None:
    rows(catalog, 'SELECT "offset" FROM clicks')
    assert catalog.reads == []
    rows(catalog, "SELECT key FROM clicks")
    assert catalog.reads == [("clicks", ("key",))]
    catalog.topics["clicks"].dense = False
    rows(catalog, "SELECT count(*) FROM clicks")
    assert catalog.reads[1:] == [("clicks", ("offset",))]


def test_what_was_learnt_is_kept_and_grows(catalog: MemoryCatalog) -> None:
    shop = StatementRuntime()
    ask(catalog, "SELECT n FROM clicks", shop=shop)
    first = len(catalog.reads)
    ask(catalog, "SELECT n FROM clicks", shop=shop)
    assert len(catalog.reads) == first + 1  # no look at the types
    catalog.add("clicks", '{"n": 1.5, "late": 1}')
    assert [row[0] for row in ask(catalog, "SELECT n FROM clicks", shop=shop).rows][:2] == ["1.0", "2.0"]
    assert "late" in ask(catalog, "SELECT * FROM clicks", shop=shop).columns
    catalog.add("clicks", '{"later": 1, "kind": 5}')
    assert "later" in ask(catalog, "SELECT * FROM clicks", shop=shop).columns
    assert ask(catalog, "SELECT later FROM clicks WHERE later = 1", shop=shop).rows == [[1]]


def test_numbers_that_are_large() -> None:
    catalog = MemoryCatalog()
    catalog.add("t", '{"n": 18446744073709551615, "N": 1, "m": 9223372036854775807}', '{"n": 1}')
    assert rows(catalog, "SELECT n, m FROM t") == [["18446744073709551615", 9223372036854775807], [1, None]]


def test_joins_of_a_stream_with_itself_and_ctes(catalog: MemoryCatalog) -> None:
    assert rows(catalog, "SELECT a.n, b.n FROM clicks a JOIN clicks b ON a.n + 1 = b.n") == [[1, 2]]
    assert rows(catalog, "WITH clicks AS (SELECT n FROM clicks WHERE n > 0) SELECT sum(n) FROM clicks") == [[3]]
    twice = "WITH a AS (SELECT n FROM clicks) SELECT count(*) FROM a x, a y WHERE x.n = y.n"
    assert rows(catalog, twice) == [[3]]
    assert rows(
        catalog,
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r, clicks c WHERE c.n = 1 AND i < 4) "
        "SELECT i, (SELECT max(kind) FROM clicks WHERE n = i) FROM r ORDER BY i",
    ) == [[1, "a"], [2, "b"], [3, None], [4, None]]
    assert rows(
        catalog, "SELECT kind FROM clicks WHERE n IN (SELECT n + 1 FROM clicks) UNION SELECT 'z' ORDER BY 1"
    ) == [
        ["b"],
        ["z"],
    ]
    assert rows(catalog, "SELECT kind, rank() OVER (ORDER BY n) FROM clicks WHERE n IS NOT NULL ORDER BY n") == [
        ["c", 1],
        ["a", 2],
        ["b", 3],
    ]


def test_parameters_of_every_type(catalog: MemoryCatalog) -> None:
    found = rows(
        catalog, "SELECT $1, $2, $3, $4, $5, $2", None, -5, "it's; --", True, Timestamp(1_234_567_890_123_456_789)
    )
    assert found == [[None, -5, "it's; --", True, Timestamp(1_234_567_890_123_456_789), -5]]
    assert rows(catalog, "SELECT kind FROM clicks WHERE n > ? ORDER BY n LIMIT ? OFFSET ?", 0, 1, 1) == [["b"]]
    assert rows(catalog, "SELECT count(*) FROM clicks WHERE timestamp <= $1", Timestamp(1_000_003_000)) == [[3]]
    assert rows(catalog, "SELECT count(*) FROM clicks WHERE n = $1", None) == [[0]]


def test_values_of_every_type() -> None:
    found = ask(
        MemoryCatalog(),
        "SELECT 1 AS a, 2 AS a, 0.1::DOUBLE, 1.50::DECIMAL(5,2), 170141183460469231731687303715884105727, 'ab'::BLOB, "
        "DATE '2020-01-02', TIME '01:02:03', INTERVAL 3 DAY, [1, 2], {'a': 'x'}, TIMESTAMPTZ '2020-01-01 00:00:00+02', "
        "TIMESTAMP_NS '2020-01-01 00:00:00.123456789', NULL, false, 0.1::FLOAT, '{\"a\": 1}'::JSON",
    )
    assert found.columns[:2] == ["a", "a"]
    assert found.rows == [
        [
            *[
                1,
                2,
                "0.1",
                "1.50",
                "170141183460469231731687303715884105727",
                "YWI=",
                "2020-01-02",
                "01:02:03",
                "3 days",
            ],
            *["[1,2]", '{"a":"x"}', Timestamp(1_577_829_600_000_000_000), Timestamp(1_577_836_800_123_456_789)],
            *[None, False, "0.1", '{"a": 1}'],
        ]
    ]


def test_several_partitions_have_a_column_of_their_own() -> None:
    catalog = MemoryCatalog()
    catalog.create("wide", partitions=2)
    catalog.add("wide", "a")
    catalog.add("wide", "b", "c", partition=1)
    assert rows(catalog, 'SELECT partition, "offset", data FROM wide') == [[0, 0, "a"], [1, 0, "b"], [1, 1, "c"]]
    assert rows(catalog, "SELECT partition, count(*) FROM wide GROUP BY 1 ORDER BY 1") == [[0, 1], [1, 2]]


# -- moments


def test_the_door_is_there_when_it_is_named() -> None:
    catalog = MemoryCatalog()
    catalog.add("t", '{"n": 1, "_door": "front"}', door="rustlog")
    catalog.add("t", '{"n": 2, "door": "back"}')
    assert ask(catalog, "SELECT * FROM t").columns == ["offset", "timestamp", "key", "data", "door", "n"]
    found = ask(catalog, "SELECT n, *, _door, t._DOOR AS d FROM t")
    assert found.columns == ["n", "offset", "timestamp", "key", "data", "door", "n", "_door", "d"]
    assert [[row[0], *row[-2:]] for row in found.rows] == [[1, "rustlog", "rustlog"], [2, None, None]]
    assert rows(catalog, "SELECT _door, COUNT(*) FROM t GROUP BY 1 ORDER BY 1") == [["rustlog", 1], [None, 1]]
    with pytest.raises(QueryError, match="set by the log"):
        ask(catalog, "INSERT INTO t (_door, n) VALUES ('flymq', 3)")


def test_the_door_of_rows_of_a_declared_table() -> None:
    catalog = MemoryCatalog()
    ask(catalog, "CREATE TABLE t (n BIGINT)")
    catalog.add("t", '{"n": 1}', door="flymq")
    assert rows(catalog, "SELECT *, _door FROM t") == [[1, "flymq"]]
    ask(catalog, "CREATE TABLE u (_door VARCHAR)")
    catalog.add("u", '{"_door": "front"}', door="flymq")
    assert rows(catalog, "SELECT _door FROM u") == [["front"]]  # as it was declared


def test_a_position_shows_what_was_there_then(catalog: MemoryCatalog) -> None:
    assert rows(catalog, "SELECT count(*) FROM clicks", at=3) == [[2]]
    assert rows(catalog, "SELECT count(*) FROM clicks AT OFFSET 3") == [[2]]
    assert "mixed" not in ask(catalog, "SELECT * FROM clicks", at=2).columns
    assert rows(catalog, "SELECT count(*) FROM clicks", at=catalog.position) == [[7]]
    assert rows(catalog, "SELECT count(*) FROM clicks", at=1) == [[0]]
    with pytest.raises(TableNotFound):
        rows(catalog, "SELECT count(*) FROM clicks", at=0)
    with pytest.raises(PositionAhead) as ahead:
        rows(catalog, "SELECT 1", at=catalog.position + 1)
    assert (ahead.value.position, ahead.value.head) == (9, 8)
    with pytest.raises(QueryInvalid, match="AT OFFSET 3"):
        rows(catalog, "SELECT count(*) FROM clicks AT OFFSET 3", at=4)
    with pytest.raises(QueryError, match="written now"):
        rows(catalog, "INSERT INTO clicks (a) VALUES (1)", at=4)


def test_a_time_shows_what_is_not_later(catalog: MemoryCatalog) -> None:
    assert rows(catalog, "SELECT max(\"offset\") FROM clicks AS OF TIMESTAMP '1970-01-01T00:00:01.000003Z'") == [[2]]
    assert rows(catalog, "SELECT count(*) FROM clicks AS OF '1970-01-01T00:00:01.0000029Z'") == [[2]]
    assert rows(catalog, "SELECT count(*) FROM clicks FOR SYSTEM_TIME AS OF '1970-01-01'") == [[0]]


def test_what_retention_removed_is_said(catalog: MemoryCatalog) -> None:
    topic = catalog.topics["clicks"]
    del topic.records[:3]
    topic.starts = {0: 3}
    assert rows(catalog, "SELECT count(*) FROM clicks") == [[4]]
    assert rows(catalog, "SELECT count(*) FROM clicks", at=5) == [[1]]
    for position in (2, 4):  # at 4 there were three records, which are gone
        with pytest.raises(PositionGone, match="oldest record is at position 4"):
            rows(catalog, "SELECT count(*) FROM clicks", at=position)


def test_a_reason_is_noted(catalog: MemoryCatalog) -> None:
    assert rows(catalog, "WITH BREAK_GLASS REASON='because' SELECT 1") == [[1]]
    assert catalog.reasons == ["because"]


# -- what goes wrong


def test_errors_of_the_log_pass_through(catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Exception):
        pass

    def fail(*_: object) -> None:
        raise Broken("the disk is gone")

    monkeypatch.setattr("tests.sql.memory.schema_of", fail)
    with pytest.raises(Broken):
        rows(catalog, "SELECT data FROM clicks")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT nope FROM clicks", "nope"),
        ("SELECT error('x')", "x"),
        ("SELECT CAST('x' AS BIGINT)", "Could not convert"),
        ("SELECT sum(kind) FROM clicks", "sum"),
    ],
)
def test_errors_at_run_time(catalog: MemoryCatalog, sql: str, said: str) -> None:
    with pytest.raises(QueryError, match=said) as raised:
        rows(catalog, sql)
    assert type(raised.value) is QueryError
    assert "LINE" not in str(raised.value)


def test_a_statement_is_cancelled(catalog: MemoryCatalog) -> None:
    stop = Stop(60)
    timer = threading.Timer(0.2, stop.cancel)
    timer.start()
    begin = time.process_time()
    with pytest.raises(QueryError, match="cancelled"):
        run(
            catalog,
            "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b",
            [],
            None,
            LIMITS,
            stop=stop,
        )
    timer.join()
    assert time.process_time() - begin < 20


def test_to_initialize_everything_may_take_longer_than_a_statement() -> None:
    runtime, catalog = StatementRuntime(), MemoryCatalog()
    runtime.warm(QueryLimits(seconds=0.0))
    catalog.add("t", "text")
    assert run(catalog, "SELECT COUNT(*) FROM t", [], None, LIMITS, runtime=runtime).rows == [[1]]
