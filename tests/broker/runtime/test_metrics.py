from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.groups import consumer_lag
from penstock.broker.groups.consumer_lag import FetchPositions
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.runtime import exposition, metrics
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.log import latency as latencies
from penstock.log.engine import Retention

HERE = DEFAULT_SCOPE

PROMISED = re.findall(
    r"\w+",
    """
messages_produced_total messages_fetched_total bytes_in_total bytes_out_total active_connections
throttled_consumers_total slow_consumers_total segments_deleted_total bytes_reclaimed_total compaction_runs_total
compaction_skipped_segments_total retention_noop_runs_total checkpoint_corruption_total
compaction_segments_rewritten_total compaction_records_dropped_total compaction_bytes_rewritten_total
fetch_latency_ns_p50 fetch_latency_ns_p95 fetch_latency_ns_p99
produce_latency_ns_p50 produce_latency_ns_p95 produce_latency_ns_p99
""",
)


def samples(fixture: BrokerFixture) -> dict[str, float]:
    """Every sample, under its name and labels as they are written."""
    lines = fixture.broker.metrics_text(ME).splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


@pytest.fixture
def fixture() -> BrokerFixture:
    fixture = BrokerFixture()
    fixture.broker.topics.create(ME, HERE, "t", 2)
    fixture.commit()
    return fixture


def test_the_text_is_valid_and_has_every_promised_name_with_help_and_type(fixture: BrokerFixture) -> None:
    text = fixture.broker.metrics_text(ME)
    assert list(text_string_to_metric_families(text))
    for name in PROMISED:
        assert re.search(rf"^# HELP {name} \S", text, re.MULTILINE), name
        assert re.search(rf"^# TYPE {name} (counter|gauge)$", text, re.MULTILINE), name
        assert re.search(rf"^{name} 0\.0$", text, re.MULTILINE), name


def test_records_count_when_they_are_committed(fixture: BrokerFixture) -> None:
    fixture.broker.produce.append(ME, HERE, "t", 0, [b"12345", b"1"], keys=[b"k", None])
    fixture.broker.produce.append(ME, HERE, "t", 1, [b"1234"])
    assert samples(fixture)["messages_produced_total"] == 0
    assert samples(fixture)["penstock_log_pending_bytes"] > 0
    fixture.commit()
    found = samples(fixture)
    assert found["messages_produced_total"] == 3
    assert found["bytes_in_total"] == 11
    assert found["penstock_log_pending_bytes"] == 0
    assert found["penstock_log_position"] == 4  # with the creation of the topic
    fixture.broker.produce.append(ME, HERE, "t", 1, [b"6"])
    fixture.commit()
    assert samples(fixture)["messages_produced_total"] == 4


def test_records_that_could_not_be_stored_do_not_count(fixture: BrokerFixture) -> None:
    fault = fixture.fill_disk()
    fixture.broker.produce.append(ME, HERE, "t", 0, [b"lost"])
    fixture.commit()
    assert samples(fixture)["messages_produced_total"] == 0
    assert samples(fixture)["penstock_log_writable"] == 0
    fixture.free_disk(fault)
    fixture.broker.produce.append(ME, HERE, "t", 0, [b"kept"])
    fixture.commit()
    assert samples(fixture)["messages_produced_total"] == 1
    assert samples(fixture)["penstock_log_writable"] == 1


def test_latency_is_the_time_until_the_commit(fixture: BrokerFixture) -> None:
    for microseconds in (1, 2, 3, 4, 100):
        fixture.broker.produce.append(ME, HERE, "t", 0, [b"v"])
        fixture.elapsed += microseconds
        fixture.commit()
    found = samples(fixture)
    assert found["produce_latency_ns_p50"] == 3_000
    assert found["produce_latency_ns_p99"] == 100_000
    assert found["fetch_latency_ns_p50"] == 0


def test_latency_is_a_histogram_in_seconds_too(fixture: BrokerFixture) -> None:
    latency = fixture.broker.metrics.door("here").fetch_latency
    for nanoseconds in (0, 4_096, 4_097, 1 << 34, (1 << 34) + 1):
        latency.add(nanoseconds)
    families = {family.name: family for family in text_string_to_metric_families(fixture.broker.metrics_text(ME))}
    found = families["penstock_fetch_latency_seconds"]
    assert found.type == "histogram"
    by_bound = {
        sample.labels["le"]: sample.value
        for sample in found.samples
        if sample.name.endswith("_bucket") and sample.labels["door"] == "here"
    }
    assert len(by_bound) == latencies.LAST_BUCKET - latencies.FIRST_BUCKET + 2
    assert (by_bound["4.096e-06"], by_bound["8.192e-06"]) == (2, 3)
    assert (by_bound["17.179869184"], by_bound["+Inf"]) == (4, 5)
    totals = {sample.name: sample.value for sample in found.samples if sample.labels == {"door": "here"}}
    assert totals["penstock_fetch_latency_seconds_count"] == 5
    assert totals["penstock_fetch_latency_seconds_sum"] == 34.359746562


def test_only_the_last_samples_count_for_latency() -> None:
    ring = latencies.Latency()
    for _ in range(latencies.LATENCY_SAMPLES):
        ring.add(1_000_000)
    for value in range(latencies.LATENCY_SAMPLES):
        ring.add(value)
    assert latencies.quantiles(ring.last(), [0.0, 0.5, 0.99, 1.0]) == [0, 512, 1013, 1023]


def test_many_requests_in_one_group_cost_a_bounded_number_of_samples(fixture: BrokerFixture) -> None:
    for _ in range(metrics.MAX_STARTED + 10):
        fixture.broker.produce.append(ME, HERE, "t", 0, [b"v"])
    pending = fixture.broker.metrics._pending
    assert pending is not None and len(pending.started) == metrics.MAX_STARTED
    fixture.commit()
    assert samples(fixture)["messages_produced_total"] == metrics.MAX_STARTED + 10


def test_what_retention_removes_is_counted() -> None:
    fixture = BrokerFixture(default_retention=Retention(seconds=86_400))
    fixture.broker.topics.create(ME, HERE, "t", 1)
    for _ in range(6):
        fixture.broker.produce.append(ME, HERE, "t", 0, [b"v"])
        fixture.commit()
        fixture.pass_time(86_400)
        fixture.broker.maintain(fixture.now)
        fixture.commit()
    journals = sum(path.endswith(".journal") for path in fixture.disk.paths())
    found = samples(fixture)
    assert found["segments_deleted_total"] > 0
    assert found["bytes_reclaimed_total"] == found["segments_deleted_total"] * fixture.settings.file_bytes
    assert journals + found["segments_deleted_total"] >= 6
    assert 0 < found["retention_noop_runs_total"] < 6


def lag_of(
    fixture: BrokerFixture, group: str, topic: str = "t", partition: int = 0, scope: Scope = HERE
) -> float | None:
    labels = {
        "group": group,
        "namespace": scope.namespace,
        "partition": partition,
        "tenant": scope.tenant,
        "topic": topic,
    }
    written = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return samples(fixture).get(f"consumer_lag{{{written}}}")


def test_lag_is_what_a_group_has_not_reached(fixture: BrokerFixture) -> None:
    fixture.broker.produce.append(ME, HERE, "t", 0, [b"v"] * 10)
    fixture.broker.groups.commit(ME, HERE, "g", "t", 0, 4)
    fixture.broker.groups.commit(ME, HERE, "ahead", "t", 0, 99)
    fixture.broker.groups.commit(ME, HERE, "g", "not there", 0, 4, topic_must_exist=False)
    fixture.commit()
    assert lag_of(fixture, "g") == 6
    assert lag_of(fixture, "ahead") == 0
    assert lag_of(fixture, "g", "not there") is None


def test_a_group_that_only_fetches_has_a_lag_too_until_it_commits(fixture: BrokerFixture) -> None:
    fixture.broker.produce.append(ME, HERE, "t", 0, [b"v"] * 10)
    fixture.commit()
    fixture.broker.fetch_positions.note(HERE, "g", "t", 0, 7)
    assert lag_of(fixture, "g") == 3
    fixture.broker.groups.commit(ME, HERE, "g", "t", 0, 2)
    assert lag_of(fixture, "g") == 8


def test_topics_of_the_same_name_in_two_tenants_are_told_apart(fixture: BrokerFixture) -> None:
    acme = Scope("acme", "eu")
    fixture.broker.topics.create(ME, acme, "t", 1)
    for scope, offset in ((HERE, 1), (acme, 0)):
        fixture.broker.produce.append(ME, scope, "t", 0, [b"v"])
        fixture.broker.groups.commit(ME, scope, "g", "t", 0, offset)
    fixture.commit()
    assert lag_of(fixture, "g") == 0
    assert lag_of(fixture, "g", scope=acme) == 1


def test_positions_are_bounded_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_lag, "MAX_POSITIONS", 2)
    positions = FetchPositions()
    for group in ("a", "b", "a", "c"):
        positions.note(HERE, group, "t", 0, 1)
    positions.note(HERE, "bad\nname", "t", 0, 1)
    assert [place.group for place, _ in positions] == ["a", "c"]


def test_the_number_of_lags_shown_is_bounded(fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "MAX_LAG_SERIES", 2)
    for group, shown, cut in (("a", 1, 0), ("b", 2, 0), ("c", 2, 1)):
        fixture.broker.groups.commit(ME, HERE, group, "t", 0, 0)
        found = samples(fixture)
        assert sum(name.startswith("consumer_lag{") for name in found) == shown
        assert found["penstock_consumer_lag_cut"] == cut


def test_every_broker_has_its_own_figures(fixture: BrokerFixture) -> None:
    other = BrokerFixture()
    fixture.broker.metrics.active_connections += 1
    assert samples(fixture)["active_connections"] == 1
    assert samples(other)["active_connections"] == 0
    assert (samples(fixture)["penstock_topics"], samples(fixture)["penstock_partitions"]) == (1, 2)


def test_every_name_has_the_prefix_but_for_those_that_a_protocol_promises(fixture: BrokerFixture) -> None:
    families = text_string_to_metric_families(fixture.broker.metrics_text(ME))
    bare = {family.name for family in families if not family.name.startswith("penstock_")}
    assert bare == {name.removesuffix("_total") for name in PROMISED} | {"consumer_lag"}


def test_figures_are_told_by_door(fixture: BrokerFixture) -> None:
    everything = fixture.broker.metrics
    everything.caller = everything.door("one")
    fixture.broker.produce.append(ME, HERE, "t", 0, [b"v"] * 3)
    everything.caller = everything.door("two")
    fixture.broker.produce.append(ME, HERE, "t", 0, [b"v"] * 2)
    everything.caller = everything.internal
    fixture.commit()
    everything.fetched(4, 40, everything.timer(), everything.door("two"))
    found = samples(fixture)
    assert found['penstock_messages_produced_total{door="one"}'] == 3
    assert found['penstock_messages_produced_total{door="two"}'] == 2
    assert found['penstock_messages_produced_total{door="internal"}'] == 0
    assert found['penstock_messages_fetched_total{door="two"}'] == 4
    assert found['penstock_produce_latency_seconds_count{door="one"}'] == 1
    assert found['penstock_fetch_latency_seconds_count{door="two"}'] == 1
    assert (found["messages_produced_total"], found["messages_fetched_total"]) == (5, 4)
    assert found["penstock_log_commit_seconds_count"] == 2  # the topic, and both appends


def records_of(fixture: BrokerFixture) -> dict[str, float]:
    """Topic → records, of those that have a series."""
    pattern = re.compile(r'penstock_topic_records_total{.*topic="(.*?)"}')
    return {match[1]: value for name, value in samples(fixture).items() if (match := pattern.match(name))}


def test_the_busiest_topics_have_series_and_the_others_one_that_only_rises() -> None:
    fixture = BrokerFixture(topic_series=2)
    for name in "abcd":
        fixture.broker.topics.create(ME, HERE, name, 2)

    def produce(name: str, count: int) -> None:
        fixture.broker.produce.append(ME, HERE, name, 1, [b"v"] * count)
        fixture.commit()

    for count, name in enumerate("abcd", start=1):
        produce(name, count)
    assert records_of(fixture) == {"d": 4, "c": 3, "other": 1 + 2}
    produce("a", 9)
    assert records_of(fixture) == {"a": 10, "d": 4, "other": 3}
    produce("c", 5)
    produce("b", 1)
    assert records_of(fixture) == {"a": 10, "c": 8, "other": 4}


def test_a_write_that_fails_is_counted(fixture: BrokerFixture) -> None:
    fixture.break_disk()
    fixture.broker.produce.append(ME, HERE, "t", 0, [b"lost"])
    fixture.commit()
    assert samples(fixture)["penstock_log_write_failures_total"] == 1


def test_durations_that_are_noted_together_count_like_single_ones() -> None:
    samples = [1, 2, 3, 4, 5, 4096, 4097, 1 << 20, (1 << 20) + 1, 1 << 40]
    together, single = latencies.Latency(), latencies.Latency()
    for _ in range(300):  # the ring of the last ones goes round several times
        together.add_all(samples)
        for nanoseconds in samples:
            single.add(nanoseconds)
    assert together.histogram() == single.histogram()
    assert sorted(together.last()) == sorted(single.last())
    buckets = dict(single.histogram()[0])
    assert buckets[str(2**12 / 1e9)] == 300 * 6
    assert buckets["+Inf"] == 300 * len(samples)
