"""Rows, speed, lag and ETA from checkpoints, as Spark writes them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock.cli.pipeline_view import Lines, progress_line
from penstock.flight.log import TopicPartition
from penstock.spark.pipelines.checkpoints import LocalFolders, MicroBatch, batches, find, read_batch
from penstock.spark.pipelines.progress import (
    FlowProgress,
    PartitionProgress,
    Watch,
    flow_progress,
    seconds_text,
)

ORDERS = TopicPartition("orders", 0)
VIEWS = TopicPartition("views", 1)


class Checkpoint:
    """Writes what Spark would."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("offsets", "commits"):
            (path / name).mkdir(parents=True)

    def batch(self, number: int, began: float, committed: float | None, *sources: object) -> None:
        lines = ["v1", json.dumps({"batchTimestampMs": int(began * 1000)}), *map(json.dumps, sources)]
        (self.path / "offsets" / str(number)).write_text("\n".join(lines))
        if committed is not None:
            commit = self.path / "commits" / str(number)
            commit.write_text("v1\n{}")
            os.utime(commit, (committed, committed))

    def forget(self, number: int) -> None:
        for name in ("offsets", "commits"):
            (self.path / name / str(number)).unlink()


def test_a_query_from_its_first_to_an_unfinished_batch(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "q")
    checkpoint.batch(0, 100.0, 102.0, {"/from": {"orders": {"0": 50}}, "orders": {"0": 150}})
    checkpoint.batch(1, 102.0, 104.0, {"orders": {"0": 350}})
    checkpoint.batch(2, 104.0, None, {"orders": {"0": 500}})
    [flow] = Watch(f"file://{tmp_path}", lambda _topics: {ORDERS: 1150}).look()
    assert flow.name == "q"
    assert flow.rows == 300  # 50 to 350; what is not committed is not done
    assert flow.rate == pytest.approx(100.0)  # the 200 of batch 1, in its 2 seconds
    assert (flow.batch, flow.committed) == (1, 104.0)
    assert flow.partitions == (PartitionProgress(ORDERS, 350, 800),)
    assert flow.lag == 800
    assert flow.eta == pytest.approx(8.0)


def test_the_first_batch_alone_has_a_speed_too(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "q")
    checkpoint.batch(0, 100.0, 104.0, {"/from": {"orders": {"0": 50}}, "orders": {"0": 150}})
    [flow] = Watch(f"file://{tmp_path}", lambda _topics: {ORDERS: 150}).look()
    assert flow.rate == pytest.approx(25.0)
    assert flow.eta == 0.0


def test_the_total_outlives_the_first_batch(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "q")
    checkpoint.batch(0, 100.0, 102.0, {"/from": {"orders": {"0": 50}}, "orders": {"0": 150}})
    checkpoint.batch(7, 102.0, 104.0, {"/from": {"orders": {"0": 50}}, "orders": {"0": 1050}, "views": {"1": 7}})
    checkpoint.forget(0)
    [flow] = Watch(f"file://{tmp_path}", lambda _topics: None).look()
    assert flow.rows == 1007  # 50 to 1050, and all of a partition that came later
    assert flow.lag is None and flow.eta is None  # the log did not answer


def test_a_total_that_nobody_knows_is_not_made_up(tmp_path: Path) -> None:
    """As earlier versions wrote them: only the first batch says where the query began."""
    checkpoint = Checkpoint(tmp_path / "q")
    checkpoint.batch(0, 100.0, 102.0, {"/from": {"orders": {"0": 50}}, "orders": {"0": 150}})
    checkpoint.batch(1, 102.0, 104.0, {"orders": {"0": 1050}})
    [flow] = Watch(f"file://{tmp_path}", lambda _topics: None).look()
    assert flow.rows == 1000
    checkpoint.forget(0)
    [flow] = Watch(f"file://{tmp_path}", lambda _topics: None).look()
    assert flow.rows is None and flow.batch == 1


def test_a_pattern_that_matched_nothing_at_first_counts_from_the_beginning(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "q")
    checkpoint.batch(8, 102.0, 104.0, {"/from": {}, "orders": {"0": 70}})
    [flow] = Watch(f"file://{tmp_path}", lambda _topics: None).look()
    assert flow.rows == 70


def test_a_flow_that_reads_no_topic_has_batches_only(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "q")
    checkpoint.batch(0, 100.0, 102.0, {"logOffset": 3})
    [flow] = Watch(f"file://{tmp_path}", lambda _topics: {}).look()
    assert flow == FlowProgress("q", None, None, 0, 102.0, ())


def test_a_query_without_a_finished_batch_and_a_missing_folder(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "q")
    checkpoint.batch(0, 100.0, None, {"orders": {"0": 3}})
    [flow] = Watch(f"file://{tmp_path}", lambda _topics: {}).look()
    assert flow.batch is None
    assert Watch(f"file://{tmp_path}/nothing", lambda _topics: {}).look() == []


def test_two_sources_of_a_query_count_as_far_as_the_slower_one() -> None:
    text = b'v1\n{"batchTimestampMs":1000}\n{"orders":{"0":7},"views":{"1":4}}\n{"orders":{"0":5}}\n-'
    assert read_batch(3, text, None) == MicroBatch(3, 1.0, None, {ORDERS: 5, VIEWS: 4}, None)


def test_numbered_checkpoints_of_declarative_pipelines(tmp_path: Path) -> None:
    below = tmp_path / "_checkpoints" / "spark_catalog" / "default"
    for number in ("0", "2", "10"):
        Checkpoint(below / "orders" / "orders" / number)
    Checkpoint(tmp_path / "_checkpoints" / "revenue" / "revenue_to_topic" / "0")
    found = find(LocalFolders(), str(tmp_path))
    assert [(each.name, each.path.rpartition("/")[2]) for each in found] == [
        ("orders", "10"),
        ("revenue_to_topic", "0"),
    ]


def test_only_the_last_batches_are_read(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    for number in range(30):
        checkpoint.batch(number, number, number + 1, {"orders": {"0": number}})
    assert [batch.number for batch in batches(LocalFolders(), str(tmp_path), 3)] == [0, 27, 28, 29]


def test_a_log_that_was_cut_off_has_no_negative_lag() -> None:
    done = MicroBatch(0, 0.0, 1.0, {ORDERS: 5}, None)
    assert flow_progress("q", [done], {ORDERS: 3}).lag == 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "–"), (0.0, "0 s"), (0.4, "< 1 s"), (99, "99 s"), (600, "10 min"), (7300, "2 h")]
)
def test_durations_for_people(seconds: float | None, text: str) -> None:
    assert seconds_text(seconds) == text


def test_lines_say_everything_and_not_too_often() -> None:
    flow = FlowProgress("q", 300, 100.0, 1, 104.0, (PartitionProgress(ORDERS, 350, 800),))
    said = "q: 300 rows, 100 rows/s, lag 800 (orders/0=800), batch 1 6 s ago, ETA 8 s"
    assert progress_line(flow, 110.0) == said
    lines = Lines()
    assert lines.due([flow], 110.0) == [said]
    later = flow._replace(batch=2)
    assert lines.due([later], 111.0) == []
    assert lines.due([flow], 120.0) == []  # nothing new
    assert len(lines.due([later], 120.0)) == 1
