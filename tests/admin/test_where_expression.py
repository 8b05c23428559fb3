"""WHERE expressions as filters on records: what fits, what is NULL, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admin.record_view import HeaderView, RecordView
from penstock.admin.where_expression import WhereExpression
from penstock.broker.errors import InvalidArgument

TIME = 1_700_000_000_000_000  # 2023-11-14 22:13:20 UTC
VALUE = json.dumps(
    {"a": {"b": 3}, "status": "failed", "n": 5, "list": [1, 2], "ok": True, "id": "7", "nothing": None, "key": "other"}
)


def record(value: str = VALUE) -> RecordView:
    headers = [HeaderView("Kind", b"odd", "odd")]
    return RecordView(1, 7, TIME, 99, b"k", "k", value.encode(), value, headers, None, "http")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a.b = 3",
            "status = 'failed' AND n > 4",
            "n BETWEEN 1 AND 5",
            "n NOT BETWEEN 6 AND 9",
            "\"status\" = 'failed'",
        ),
        *("status LIKE 'fa%'", "status ILIKE 'F_ILED'", "status NOT LIKE '%x%'", "status IN ('x', 'failed')"),
        *("header('kind') = 'odd'", "header('none') IS NULL", "key = 'k' AND offset = 7 AND partition = 1"),
        *("timestamp > '2023-11-14'", "timestamp = TIMESTAMP '2023-11-14 22:13:20'", "timestamp < now()"),
        *("timestamp < now() - INTERVAL '10 minutes'", "timestamp + INTERVAL 1 DAY > '2023-11-15T22:00:00+00:00'"),
        *("value ->> '$.a.b' = 3", "value ->> '$.list[1]' = 2", "a ->> 'b' = 3", "data.key = 'other'", "position = 99"),
        *(
            "ok",
            "ok = 'true'",
            "NOT (n = 4)",
            "n <> 4",
            "id = 7",
            "id::INT = 7",
            "n::TEXT = '5'",
            "-n = -5",
            "n % 2 = 1",
        ),
        *("n + 1 = 6", "n / 2 = 2.5", "status || 'x' = 'failedx'", "abs(-n) = 5", "length(status) = 6"),
        *("lower(upper(status)) = 'failed'", "contains(status, 'ail')", "starts_with(status, 'f')"),
        *("ends_with(status, 'ed')", "coalesce(nothing, none, status) = 'failed'", "nothing IS NULL", "n IS NOT NULL"),
        *("ok IS TRUE", "n = 1 OR n = 5", "contains(value, 'failed')", "trim(' ' || status) = 'failed'"),
    ],
)
def test_what_fits(text: str) -> None:
    assert WhereExpression(text)(record())
    assert not WhereExpression(f"NOT ({text})")(record())


@pytest.mark.parametrize(
    "text",
    [
        *("none = 1", "NOT (none = 1)", "status > 5", "NOT (status > 5)", "n / 0 = 1", "NOT (n / 0 = 1)", "a = 3"),
        *("none IN (1, 2)", "n NOT IN (1, none)", "timestamp > 'yesterday'", "n", "status", "status + 1 = 2", "NULL"),
    ],
)
def test_what_is_null_does_not_fit_and_neither_does_its_opposite(text: str) -> None:
    assert not WhereExpression(text)(record())


def test_a_value_that_is_no_json_has_no_fields() -> None:
    for value in ("plain text", "[1, 2]", "5", "{", "\\"):
        assert not WhereExpression("n = 5")(record(value))
        assert WhereExpression("offset = 7")(record(value)) and WhereExpression("n IS NULL")(record(value))


@pytest.mark.parametrize(
    "text",
    [
        *("", "n =", "n = 5; DROP TABLE orders", "n = 5) OR (1 = 1", "(SELECT 1) = 1", "n IN (SELECT 1)"),
        *("EXISTS (SELECT 1)", "sum(n) = 1", "random() > 1", "read_text('/etc/passwd') = ''", "n = $1", "n = ?"),
        *("CASE WHEN n = 5 THEN TRUE END", "status SIMILAR TO 'x'", "status LIKE none", "n IS none", "list[1] = 1"),
        *("(" * 1300 + "1 = 1" + ")" * 1300, "n::BLOB = 1", "timestamp > now() - INTERVAL 1 YEAR", "header(n) = 1"),
        *("+".join(["n"] * 2000) + " = 1", "COLUMNS('a') = 1", "n = 5 -- \n) OR (TRUE"),
    ],
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        WhereExpression(text)


def test_long_chains_are_understood() -> None:
    assert WhereExpression(" AND ".join(["n = 5"] * 400))(record())
    assert not WhereExpression(" OR ".join(["n = 6"] * 400))(record())


def test_no_text_grows_without_bound() -> None:
    doubled = "value || value"
    assert not WhereExpression(f"length({doubled}) > 0")(record(json.dumps({"x": "y" * (1 << 20)})))


@given(st.text(alphabet="n =<>'()5+-*/|,.ab_%\"$ ANDORTIS", max_size=40))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        where = WhereExpression(text)
    except InvalidArgument:
        return
    assert where(record()) in (True, False)
