"""The statement that is executed is written anew from the parsed one: it has to mean the same."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from tests.sql.ask import rows
from tests.sql.memory import MemoryCatalog

EXPRESSIONS = """
'{"a.b": 1, "a": {"b": 2}}'::JSON ->> 'a.b'
'{"a.b": 1, "a": {"b": 2}}'::JSON ->> '$.a.b'
'{"a": [1, 2]}'::JSON -> 'a' -> 1
json_extract('{"a": {"b": 2}}', '/a/b')
json_extract('{"a": 1, "b": 2}', ['$.a', '$.b'])
json_object('a', 1, 'b', [1])
5 / 2
-5 // 2
2 ** 10
2 ^ 10
'abc' SIMILAR TO 'a.c'
'abc' GLOB 'a*'
regexp_replace('aaa', 'a', 'b', 'g')
'hello'[2:3]
[1, 2, 3][-1]
list_transform([1, 2], lambda x: x + 1)
[x * 2 for x in [1, 2, 3] if x > 1]
{'a': 1}.a
map {'a': 1}['a']
DATE '2020-01-31' + INTERVAL 1 MONTH
DATE '2020-01-01'::VARCHAR
TIMESTAMP '2020-01-01 10:30:00'::DATE
TIMESTAMPTZ '2020-01-01T12:00:00+02:00'::TIMESTAMP
DECIMAL(10,2) '1.555'::VARCHAR
INTEGER '5'::DOUBLE / 2
JSON '{"a": [1, 2]}' -> 'a' ->> 0
INT[] '[1, 2]'::VARCHAR
VARCHAR 'abc'[1]
-'5'::INT
'1'::INT::VARCHAR || '2'
date_trunc('month', TIMESTAMP '2020-05-05 10:00:00')
datediff('day', DATE '2020-01-01', DATE '2020-02-01')
strftime(DATE '2020-01-01', '%Y/%m/%d')
to_timestamp(1600000000)
time_bucket(INTERVAL 1 HOUR, TIMESTAMP '2020-01-01 10:30:00')
TIMESTAMP '2020-01-01 00:00:00' AT TIME ZONE 'Europe/Berlin'
round(-2.5)
log(100)
substring('hello' FROM 2 FOR 2)
trim(BOTH 'x' FROM 'xax')
1 IS DISTINCT FROM NULL
1 = ANY ([1, 2])
xor(5, 3)
E'a\\nb'
'ab' COLLATE NOCASE = 'AB'
quantile_cont(1, 0.5)
percentile_cont(0.5) WITHIN GROUP (ORDER BY 3)
sum(1) FILTER (WHERE true)
string_agg(DISTINCT 'x', ',')
lag(1) OVER (ORDER BY 1)
'12'.length()
generate_series(1, 3)
repeat('ab', 3)
lpad('a', 3, 'x')
"""


@pytest.fixture(scope="module")
def direct() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.mark.parametrize("expression", EXPRESSIONS.strip().split("\n"))
def test_an_expression_means_the_same(direct: duckdb.DuckDBPyConnection, expression: str) -> None:
    expected = direct.execute(f"SELECT ({expression})::VARCHAR").fetchall()
    assert [tuple(row) for row in rows(MemoryCatalog(), f"SELECT ({expression})::VARCHAR")] == expected
