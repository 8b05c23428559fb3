"""Options of a table in SQL, as metadata of its columns, with the options that Spark 4.2 was seen to pass."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import StructType

from penstock.flight.errors import OptionsUnusable
from penstock.spark.columns import full_schema
from penstock.spark.options import CREDENTIALS, OptionRefused, batch_options
from penstock.spark.table_options import COLUMN, METADATA, all_options, with_options

BROKER = {"bootstrap.servers": "b:1"}
ORDERS = BROKER | {"subscribe": "orders"}


def created(options: dict[str, str], path: str | None = None) -> StructType:
    """The stored columns of a new table: Spark passes its options twice, `path` as a URL, and other properties."""
    given = {"provider": "penstock", "owner": "me", "comment": "mine"}
    for name, text in options.items():
        given |= {name.lower(): text, f"option.{name.lower()}": text}
    if path is not None:
        given |= {"path": f"file:{path}", "location": f"file:{path}"}
    return StructType.fromJson(json.loads(with_options(full_schema(), given).json()))


def test_a_read_has_the_options_of_its_table() -> None:
    table = created({"kafka.bootstrap.servers": "b:1", "penstock.subscribe": "orders", "failOnDataLoss": "false"})
    assert all_options(table, {}) == ORDERS | {"failondataloss": "false"}
    assert batch_options(all_options(table, {})).selection.topics == ("orders",)
    assert [field.name for field in table.fields if field.metadata] == [COLUMN]
    assert all_options(created({"subscribe": "t"}, path="/data dir"), {}) == {"path": "/data dir", "subscribe": "t"}
    assert all_options(created({}, path="/d"), {"subscribe": "t"}) == {"path": "/d", "subscribe": "t"}


def test_nothing_is_kept_for_a_read_or_a_table_without_options() -> None:
    for schema in (with_options(full_schema(), ORDERS), created({})):
        assert not any(field.metadata for field in schema.fields)
        assert all_options(schema, {"subscribe": "t"}) == {"subscribe": "t"}


@pytest.mark.parametrize(
    ("table", "query", "found"),
    [
        ({"failOnDataLoss": "true"}, {"FAILONDATALOSS": "false"}, {"subscribe": "orders", "FAILONDATALOSS": "false"}),
        ({}, {"assign": '{"t":[0]}'}, {"assign": '{"t":[0]}'}),
        ({}, {"penstock.subscribePattern": "t.*"}, {"penstock.subscribePattern": "t.*"}),
        ({"startingTimestamp": "5"}, {"startingOffsets": "x"}, {"subscribe": "orders", "startingOffsets": "x"}),
        ({"endingOffsets": "x"}, {"endingTimestamp": "5"}, {"subscribe": "orders", "endingTimestamp": "5"}),
        ({"user": "u"}, {"password": "p"}, {"subscribe": "orders", "user": "u", "password": "p"}),
        ({"user": "u"}, {"api.key": "k"}, {"subscribe": "orders", "api.key": "k"}),
    ],
)
def test_options_of_the_query_replace_those_of_the_table(
    table: dict[str, str], query: dict[str, str], found: dict[str, str]
) -> None:
    assert all_options(created(ORDERS | table), query) == BROKER | found


def test_a_query_with_an_address_has_all_options_itself() -> None:
    """Also `.schema(spark.table("t").schema)`: the columns of a table, without its options."""
    for query in (ORDERS | {"bootstrap.servers": "other:1"}, {"path": "/d"}, {"kafka.bootstrap.servers": "other:1"}):
        assert all_options(created(ORDERS | {"user": "u"}), query) == query


@pytest.mark.parametrize("name", ["password", "penstock.password", "Api.Key", "tables.option.aws_secret_access_key"])
def test_credentials_are_refused(name: str) -> None:
    assert any(beginning in name.lower() for beginning in CREDENTIALS)
    with pytest.raises(OptionRefused, match="may be a credential") as refused:
        created(ORDERS | {name: "hunter2"})
    assert "hunter2" not in str(refused.value) and "WITH (" in str(refused.value)


def test_only_known_options_are_kept() -> None:
    """An unknown one may be a credential; those of the sink mean nothing to a read."""
    table = created(ORDERS | {"aws.secret": "hunter2", "topic": "t", "tls.ca": "/ca", "user": "u"})
    assert all_options(table, {}) == ORDERS | {"tls.ca": "/ca", "user": "u"}
    assert "hunter2" not in table.json()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (ORDERS | {"startingOffset": "x"}, "did you mean 'startingOffsets'?"),
        ({"subscribe": "orders"}, "give exactly one: 'bootstrap.servers'"),
        (BROKER | {"path": "/d"}, "Both of the options"),
        ({"bootstrap.servers": "nowhere:x"}, "no HOST:PORT"),
        (BROKER | {"tls.cert": "/c"}, "needed together"),
    ],
)
def test_mistakes_are_found_when_the_table_is_created(options: dict[str, str], said: str) -> None:
    with pytest.raises((OptionRefused, OptionsUnusable)) as refused:
        created(options)
    assert said in str(refused.value)


def test_the_metadata_is_that_of_tables_which_exist_already() -> None:
    """Metastores keep it: a change of its form needs a way to read this one."""
    kept = json.loads(created(ORDERS).json())["fields"][6]
    assert (kept["name"], METADATA) == ("timestampType", "penstock.options")
    assert kept["metadata"] == {"penstock.options": '{"bootstrap.servers": "b:1", "subscribe": "orders"}'}
