"""The options of the source, and the errors for anything else."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock.flight.errors import OptionsUnusable
from penstock.flight.log import TopicPartition
from penstock.spark.kafka_options import ALWAYS_SO, EQUIVALENT, RENAMED
from penstock.spark.options import (
    BatchLimits,
    OffsetSpec,
    OptionRefused,
    OptionValues,
    Retries,
    batch_options,
    included,
    stream_options,
)

BROKER = {"bootstrap.servers": "127.0.0.1:9"}
ORDERS = BROKER | {"subscribe": "orders"}
AT = TopicPartition("t", 0)


def lower(options: dict[str, Any]) -> dict[str, str]:
    """As Spark gives them."""
    return {name.lower(): text for name, text in options.items()}


def test_defaults_are_those_of_the_kafka_source() -> None:
    batch, stream = batch_options(ORDERS), stream_options(ORDERS)
    assert (batch.starting.kind, batch.ending.kind) == ("earliest", "latest")
    assert stream.starting.kind == "latest"
    for options in (batch, stream):
        assert options.fail_on_data_loss and options.without_match == "error"
        assert options.limits == BatchLimits(None, None, None, 900_000)
        assert (options.least_tasks, options.most_rows_in_task, options.group, options.topics_live) == (
            None,
            None,
            None,
            -1,
        )


@pytest.mark.parametrize(
    "names",
    [
        {"maxOffsetsPerTrigger": "5", "failOnDataLoss": "FALSE"},
        {"maxoffsetspertrigger": "5", "failondataloss": "false"},
        {"MAXOFFSETSPERTRIGGER": "5", "penstock.failOnDataLoss": "False"},
    ],
)
def test_names_are_taken_in_any_case_and_with_our_prefix(names: dict[str, str]) -> None:
    options = stream_options(ORDERS | names)
    assert options.limits.rows == 5 and not options.fail_on_data_loss


def test_the_connection_gets_what_is_its_own() -> None:
    given = lower(
        ORDERS
        | {"user": "u", "password": "P", "tls.ca": "/ca", "penstock.tenant": "t", "fetchOffset.numRetries": "7"}
        | {"maxOffsetsPerTrigger": "5", "mine": "x"}
    )
    broker = {"bootstrap.servers": "127.0.0.1:9", "user": "u", "password": "P", "tls.ca": "/ca", "tenant": "t"}
    assert stream_options(given).connection == broker
    data_dir = {"path": "/x", "tables.url": "s3://b", "tables.option.region": "r"}
    assert batch_options(data_dir | {"subscribe": "t"}).connection == data_dir


def test_a_connection_that_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(OptionsUnusable, match="needed together"):
        stream_options(ORDERS | {"user": "u"})


def test_a_broker_is_waited_for_and_a_directory_is_not() -> None:
    assert stream_options(ORDERS).retries == Retries(120_000, 120_000, 3, 10)
    assert batch_options(ORDERS).retries == Retries(30_000, 30_000, 3, 10)
    assert batch_options({"path": "/x", "subscribe": "t"}).retries == Retries(0, 0, 3, 10)
    given = {"retryTimeout": "5s", "pollTimeoutMs": "70", "fetchOffset.numRetries": "0"}
    assert stream_options(lower(ORDERS | given | {"fetchOffset.retryIntervalMs": "1"})).retries == Retries(
        5000, 70, 0, 1
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "a"}, "None of the options 'bootstrap.servers' and 'path' given"),
        ({"subscribe": "a", "path": "/x", "bootstrap.servers": "h:1"}, "Both of the options"),
        (BROKER, "No topic given; give exactly one of 'subscribe'"),
        (BROKER | {"subscribe": "a", "assign": '{"a":[0]}'}, "Options 'subscribe' and 'assign' given"),
        (BROKER | {"subscribe": " , "}, "Option 'subscribe' is ' , '; names of topics"),
        (BROKER | {"subscribePattern": "("}, "Option 'subscribePattern' is '('; a Python regular expression"),
        (BROKER | {"subscribePattern": ""}, "Option 'subscribePattern' is ''; a Python"),
        (BROKER | {"assign": '["a"]'}, "Option 'assign' is '[\"a\"]'; JSON with the partitions"),
        (BROKER | {"assign": '{"a":[-1]}'}, "Option 'assign'"),
        (BROKER | {"assign": '{"a":[true]}'}, "Option 'assign'"),
        (BROKER | {"assign": "{}"}, "Option 'assign'"),
        (ORDERS | {"startingOffsets": "first"}, "Option 'startingOffsets' is 'first'; 'earliest', 'latest' or JSON"),
        (ORDERS | {"startingOffsets": '{"t":{"x":1}}'}, "Option 'startingOffsets'"),
        (ORDERS | {"startingOffsets": '{"t":{"0":-3}}'}, "Option 'startingOffsets'"),
        (ORDERS | {"startingOffsets": '{"t":{"0":1.5}}'}, "Option 'startingOffsets'"),
        (ORDERS | {"startingOffsets": '{"t":5}'}, "Option 'startingOffsets'"),
        (ORDERS | {"startingTimestamp": "soon"}, "Option 'startingTimestamp' is 'soon'; a whole number"),
        (ORDERS | {"startingTimestamp": "-1"}, "Option 'startingTimestamp' is '-1'"),
        (ORDERS | {"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "Option 'startingOffsetsByTimestamp'"),
        (ORDERS | {"startingOffsetsByTimestampStrategy": "nearest"}, "'error' or 'latest' is allowed"),
        (ORDERS | {"failOnDataLoss": "no"}, "Option 'failOnDataLoss' is 'no'; 'true' or 'false' is allowed"),
        (ORDERS | {"includeHeaders": "1"}, "Option 'includeHeaders' is '1'"),
        (ORDERS | {"includeDoor": "1"}, "Option 'includeDoor' is '1'"),
        (ORDERS | {"minPartitions": "0"}, "Option 'minPartitions' is '0'; a whole number of at least 1"),
        (ORDERS | {"maxRecordsPerPartition": "x"}, "Option 'maxRecordsPerPartition' is 'x'"),
        (ORDERS | {"fetchOffset.numRetries": "-1"}, "Option 'fetchOffset.numRetries' is '-1'"),
        (ORDERS | {"fetchOffset.retryIntervalMs": "x"}, "Option 'fetchOffset.retryIntervalMs'"),
        (ORDERS | {"pollTimeoutMs": "0"}, "Option 'pollTimeoutMs' is '0'"),
        (ORDERS | {"partition.metadata.cache.ttl.ms": "-2"}, "Option 'partition.metadata.cache.ttl.ms' is '-2'"),
        ({"path": "/x", "subscribe": "a", "group.id": "g"}, "Option 'group.id' is 'g'; but the offsets of a group"),
    ],
)
def test_what_is_refused_by_both_names_the_option_and_what_is_allowed(options: dict[str, str], said: str) -> None:
    for parse in (batch_options, stream_options):
        with pytest.raises(OptionRefused) as refused:
            parse(lower(options))
        assert said in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "latest"}, "a batch cannot begin at the latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "a batch cannot begin at the latest"),
        ({"endingOffsets": "earliest"}, "a batch cannot end at the earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "a batch cannot end at the earliest"),
    ],
)
def test_what_is_refused_by_a_batch(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionRefused, match=said):
        batch_options(ORDERS | options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "'endingOffsets' is for spark.read only"),
        ({"endingOffsetsByTimestamp": "{}"}, "'endingOffsetsByTimestamp' is for spark.read only"),
        ({"endingTimestamp": "1"}, "'endingTimestamp' is for spark.read only"),
        ({"maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger' is '0'"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, r"'minOffsetsPerTrigger' \(6\) is above"),
        ({"maxTriggerDelay": "5 weeks"}, "'maxTriggerDelay' is '5 weeks'; a time is allowed"),
        ({"maxBytesPerTrigger": "0"}, "'maxBytesPerTrigger' is '0'; a number of bytes"),
        ({"maxBytesPerTrigger": "5x"}, "'maxBytesPerTrigger' is '5x'"),
    ],
)
def test_what_is_refused_by_a_stream(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionRefused, match=said):
        stream_options(ORDERS | options)


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_one_time_wins_over_times_and_these_over_offsets(side: str) -> None:
    offsets = {f"{side}Offsets": '{"t":{"0":5}}'}
    times = {f"{side}OffsetsByTimestamp": '{"t":{"0":1700}}'}
    one = {f"{side}Timestamp": "1800"}

    def found(options: dict[str, str]) -> OffsetSpec:
        position: OffsetSpec = getattr(batch_options(lower(ORDERS | options)), side)
        return position

    assert found(offsets) == OffsetSpec("offsets", f"{side}Offsets", {AT: 5})
    assert found(offsets | times) == OffsetSpec("times", f"{side}OffsetsByTimestamp", {AT: 1700})
    assert found(offsets | times | one) == OffsetSpec("time", f"{side}Timestamp", time=1800)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("15m", 900_000), ("10s", 10_000), ("1h", 3_600_000), ("500ms", 500), ("250", 250), ("1 d", 86_400_000)],
)
def test_times(text: str, milliseconds: int) -> None:
    assert stream_options(ORDERS | {"maxTriggerDelay": text}).limits.longest_wait == milliseconds


@pytest.mark.parametrize(("text", "size"), [("100", 100), ("64k", 65536), ("1m", 1 << 20), ("2GB", 2 << 30)])
def test_sizes(text: str, size: int) -> None:
    assert stream_options(ORDERS | {"maxBytesPerTrigger": text}).limits.bytes == size


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("startingOffset", "startingOffsets"),
        ("startingOfsets", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("maxFilesPerTrigger", "maxOffsetsPerTrigger"),
        ("subscribes", "subscribe"),
        ("topicPattern", None),
        ("bootstrap.server", "bootstrap.servers"),
        ("passwort", "password"),
        ("failOnDataLos", "failOnDataLoss"),
    ],
)
def test_a_misspelt_option_is_answered_with_the_nearest(wrong: str, right: str | None) -> None:
    options = lower(ORDERS | {wrong: "1"})
    if right is None:
        stream_options(options)
        return
    with pytest.raises(OptionRefused) as refused:
        stream_options(options)
    assert f"Option {wrong.lower()!r} is not known" in str(refused.value)
    assert f"did you mean {right!r}" in str(refused.value)


# Options of the Kafka source

OFFSETS, TIMES = '{"t":{"0":5,"1":-2}}', '{"t":{"0":1700,"1":1800}}'
BOTH = {
    "subscribe": "orders",
    "subscribePattern": "ord.*",
    "assign": '{"orders":[0,1]}',
    "startingOffsets": OFFSETS,
    "startingOffsetsByTimestamp": TIMES,
    "startingTimestamp": "1700",
    "startingOffsetsByTimestampStrategy": "latest",
    "failOnDataLoss": "false",
    "kafkaConsumer.pollTimeoutMs": "70",
    "fetchOffset.numRetries": "7",
    "fetchOffset.retryIntervalMs": "70",
    "maxOffsetsPerTrigger": "7",
    "minOffsetsPerTrigger": "7",
    "maxTriggerDelay": "7m",
    "minPartitions": "7",
    "maxRecordsPerPartition": "7",
    "kafka.group.id": "g",
}
OF_A_BATCH = {"endingOffsets": '{"t":{"0":5}}', "endingOffsetsByTimestamp": TIMES, "endingTimestamp": "1700"}


@pytest.mark.parametrize("name", [*BOTH, *OF_A_BATCH])
def test_every_option_of_the_guide_has_a_meaning(name: str) -> None:
    """Those that are refused are below; `includeHeaders` adds a column, and `topic` is an option of the sink."""
    selection = {} if name in ("subscribe", "subscribePattern", "assign") else {"subscribe": "other"}
    without = {"subscribe": "other"} | {"bootstrap.servers": "h:1"}
    given = {"kafka.bootstrap.servers": "h:1"} | selection | {name: (BOTH | OF_A_BATCH)[name]}
    assert batch_options(lower(given)) != batch_options(without)
    if name in BOTH:
        assert stream_options(lower(given)) != stream_options(without)


def test_options_of_the_kafka_source_under_another_name() -> None:
    options = {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t",
        "kafkaConsumer.pollTimeoutMs": "7",
        "kafka.group.id": "g",
    }
    found = stream_options(lower(options))
    assert found.connection == {"bootstrap.servers": "h:1"}
    assert found.retries.poll_timeout == 7 and found.group == "g"
    with pytest.raises(OptionRefused, match="and under another name 'h:1'; give one of them"):
        stream_options({"bootstrap.servers": "h:1", "kafka.bootstrap.servers": "h:2", "subscribe": "t"})


def test_options_of_the_kafka_source_that_are_always_so() -> None:
    for name, allowed in ALWAYS_SO.items():
        for text in allowed:
            stream_options(ORDERS | {name: text})
        with pytest.raises(OptionRefused, match="Kafka source; here the same is done by"):
            stream_options(ORDERS | {name: "something else"})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kafka.sasl.jaas.config", "'user' and 'password', or 'api.key'"),
        ("kafka.ssl.truststore.location", "'tls.ca', a PEM file"),
        ("kafka.ssl.protocol", "'tls.hostname'"),
        ("kafka.auto.offset.reset", "'startingOffsets'"),
        ("groupIdPrefix", "'group.id'"),
        ("kafkaConsumer.pollTimeout", "'pollTimeoutMs' is known under both names"),
        ("kafka.something.new", "nothing here"),
    ],
)
def test_options_of_the_kafka_source_that_are_refused_name_the_equivalent(name: str, said: str) -> None:
    with pytest.raises(OptionRefused) as refused:
        stream_options(lower(ORDERS | {name: "x"}))
    assert f"Option {name.lower()!r} is one of Spark's Kafka source" in str(refused.value) and said in str(
        refused.value
    )


def test_the_page_has_every_option_of_the_kafka_source() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "spark.md").read_text().lower()
    for name in (*RENAMED, *ALWAYS_SO, *EQUIVALENT):
        assert f"`{name}`" in page or f"`{name}…`" in page, name


def test_without_any_option_the_cause_may_be_create_table() -> None:
    with pytest.raises(OptionRefused, match="CREATE TEMPORARY VIEW"):
        batch_options({})
    with pytest.raises(OptionRefused) as refused:
        batch_options({"subscribe": "t"})
    assert "CREATE" not in str(refused.value)


def test_empty_values_stand_for_none_if_that_is_asked_for() -> None:
    assert not batch_options(ORDERS).empty_is_null
    assert batch_options(ORDERS | {"emptyValues": "NULL"}).empty_is_null
    with pytest.raises(OptionRefused, match="'empty' or 'null' is allowed"):
        batch_options(ORDERS | {"emptyValues": "none"})


def test_options_of_others_are_let_be() -> None:
    others = {"mergeSchema": "true", "my.own": "1", "spark.sql.whatever": "2"}
    assert stream_options(ORDERS | others) == stream_options(ORDERS)


def test_headers_only_if_they_are_asked_for() -> None:
    assert included(OptionValues({"includeheaders": "TRUE"})) == ["headers"] and not included(OptionValues({}))
    assert included(OptionValues({"includeHeaders": "true", "includeDoor": "true"})) == ["headers", "door"]


def test_topics_of_a_subscription() -> None:
    assert stream_options(BROKER | {"subscribe": " b, a ,a"}).selection.topics == ("a", "b")
    selection = stream_options(BROKER | {"subscribePattern": "or|[dot]+er."}).selection
    assert selection.matching(["orders", "others", "oders", "for", "or", "ORDERS"]) == ["oders", "or"]  # whole names
    assigned = stream_options(BROKER | {"assign": '{"b":[1,0],"a":[2]}'}).selection.assigned
    assert assigned == (("a", 2), ("b", 0), ("b", 1))


def test_options_travel_to_workers() -> None:
    options = batch_options(ORDERS | {"startingOffsets": '{"t":{"0":5}}'})
    assert pickle.loads(pickle.dumps(options)) == options


def test_given_tells_its_names() -> None:
    given = OptionValues({"Penstock.User": "u", "X": "1"})
    assert given.names() == ["user", "x"] and "USER" in given and given.text("User") == "u"
