"""Queries that fail: started again later and later, quarantined at last, and never at the expense of others."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.data_dir import DataDir
from tests.spark.query import until

from penstock.retry import RetryPolicy, no_jitter
from penstock.spark.pipelines import continuous
from penstock.spark.pipelines.project import load
from penstock.spark.pipelines.supervision import Flow, SparkLost, Supervisor, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLICY = RetryPolicy(attempts=3, base=1.0, cap=60.0, random=no_jitter)


class FakeQuery:
    """Runs until it is told to fail, or fails at once with `error`."""

    def __init__(self, error: str = "", batch: int | None = None) -> None:
        self.error = error
        self.stopped = False
        self.lastProgress = None if batch is None else {"batchId": batch}
        self.lost = False

    @property
    def isActive(self) -> bool:  # noqa: N802
        if self.lost:
            raise ConnectionRefusedError("gone")
        return not self.error and not self.stopped

    def exception(self) -> Exception | None:
        return RuntimeError(self.error) if self.error else None

    def stop(self) -> None:
        self.stopped = True


def flow(*queries: FakeQuery, name: str = "orders") -> Flow:
    first, *others = queries
    return Flow(name, first, iter(others).__next__, POLICY)


def test_a_query_that_fails_is_started_again_after_a_delay_that_grows() -> None:
    one = flow(FakeQuery("bad row"), FakeQuery("bad row"), FakeQuery())
    assert one.look(0.0) == "Flow orders is RESTARTING in 1 s: bad row"
    assert one.look(0.9) is None
    assert one.look(1.0) == "Flow orders is RUNNING again."
    assert one.look(1.5) == "Flow orders is RESTARTING in 2 s: bad row"
    assert one.look(3.4) is None
    assert one.look(3.5) == "Flow orders is RUNNING again."
    assert one.look(9.0) is None
    assert (one.phase, one.restarts, one.error) == ("running", 2, "bad row")


def test_without_a_batch_in_between_it_is_quarantined_and_the_others_go_on() -> None:
    said: list[str] = []
    good = FakeQuery()
    flows = [flow(*(FakeQuery("no") for _ in range(9))), flow(good, name="views")]
    supervisor = Supervisor(flows, said.append)
    for now in range(100):
        supervisor.look(float(now))
    assert said[-1] == "Flow orders is QUARANTINED after 3 failures in a row: no"
    assert [one.phase for one in flows] == ["quarantined", "running"]
    assert flows[0].restarts == 2 and not supervisor.ended
    supervisor.stop()
    assert good.stopped


def test_a_batch_that_was_done_makes_it_a_first_failure_again() -> None:
    one = flow(*(FakeQuery("now and then", batch=number) for number in range(9)))
    for now in range(0, 30, 2):
        one.look(float(now))
    assert one.phase in ("running", "restarting") and one.restarts >= 5
    stuck = flow(*(FakeQuery("always", batch=7) for _ in range(9)))  # the same batch is no progress
    for now in range(0, 30, 2):
        stuck.look(float(now))
    assert stuck.phase == "quarantined"


@pytest.mark.parametrize(
    "reason",
    [
        "penstock.flight.errors.LogUnavailable: 127.0.0.1:8815 does not answer",
        "org.apache.spark.SparkException: Python worker failed to connect back.",
    ],
)
def test_an_outage_of_the_broker_and_a_busy_machine_are_no_fault_of_the_query(reason: str) -> None:
    one = flow(*(FakeQuery(reason) for _ in range(50)))
    for now in range(0, 100, 2):
        one.look(float(now))
    assert one.phase in ("running", "restarting") and one.restarts > POLICY.attempts


def test_a_start_that_fails_is_a_failure_too() -> None:
    def refuse() -> FakeQuery:
        raise ValueError("no such column")

    one = Flow("orders", FakeQuery("x"), refuse, POLICY)
    said = [text for now in range(0, 20, 2) if (text := one.look(float(now)))]
    assert said[-1] == "Flow orders is QUARANTINED after 3 failures in a row: no such column"


def test_only_one_is_started_at_a_time() -> None:
    flows = [flow(FakeQuery("x"), FakeQuery(), name=name) for name in "abc"]
    supervisor = Supervisor(flows, lambda _: None)
    supervisor.look(0.0)
    for count in range(1, 4):
        supervisor.look(50.0)
        assert [one.phase for one in flows].count("running") == count


def test_a_query_that_ends_by_itself_is_completed_and_spark_that_is_gone_is_told() -> None:
    ended = FakeQuery()
    ended.stop()
    one = flow(ended)
    assert one.look(0.0) == "Flow orders is COMPLETED."
    assert Supervisor([one], lambda _: None).ended
    lost = FakeQuery()
    lost.lost = True
    with pytest.raises(SparkLost, match="gone"):
        flow(lost).look(0.0)


def test_the_line_of_an_error_that_says_what_it_was() -> None:
    quoted = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was raised by the Python Proxy.\n"
        'Traceback (most recent call last):\n  File "x.py", line 3, in f\n    raise ValueError(x)\n'
        "penstock.TableMismatch: t: batch 1, row 0, column 'x': no\n SQLSTATE: XXKST\n"
    )
    assert first_line(quoted) == "penstock.TableMismatch: t: batch 1, row 0, column 'x': no"
    by_the_source = quoted.replace("Proxy.\n", "Proxy: ")  # on one line
    assert first_line(by_the_source) == "penstock.TableMismatch: t: batch 1, row 0, column 'x': no"
    assert first_line("one\ntwo") == "one"
    assert first_line(ValueError()) == "ValueError"


def test_the_essential_line_is_kept_however_much_comes_before_it() -> None:
    frames = "".join(f'  File "x.py", line {number}, in f\n' for number in range(200))
    text = f"[STREAM_FAILED] said: Traceback (most recent call last):\n{frames}errors.TopicMissing: There is no topic\n"
    made = flow(FakeQuery(text))
    assert made.look(0.0) == "Flow orders is RESTARTING in 1 s: errors.TopicMissing: There is no topic"
    assert first_line(made.error) == "errors.TopicMissing: There is no topic"
    assert "[STREAM_FAILED]" in made.error and len(made.error) < 3_000


# In Spark

PIPELINE = """
import os
from pathlib import Path
from pyspark.sql.functions import udf

HERE = Path(__file__).parent


def start(spark, pipeline):
    return [begin(spark, pipeline, name, take) for name, take in (("good", good), ("recovers", recovers), ("bad", bad))]


def begin(spark, pipeline, name, take):
    rows = spark.readStream.format("penstock").options(**pipeline.broker).option("subscribe", "t")
    rows = rows.option("startingOffsets", "earliest").load().selectExpr("offset")
    if name == "good":
        rows = rows.select(dies_once("offset").alias("offset"))
    writer = rows.writeStream.queryName(name).option("checkpointLocation", pipeline.checkpoint(name))
    return writer.foreachBatch(take).trigger(processingTime="0 seconds").start()


@udf("long")
def dies_once(offset):
    try:
        os.close(os.open(HERE / "killed", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return offset
    os.kill(os.getpid(), 9)


def good(rows, batch):
    note("good", rows)


def recovers(rows, batch):
    failed = len(list(HERE.glob("failed-*")))
    if failed < 2:
        (HERE / f"failed-{failed}").touch()
        raise ValueError("not yet")
    note("recovers", rows)


def bad(rows, batch):
    raise ValueError("never")


def note(name, rows):
    with open(HERE / name, "a") as stream:
        stream.writelines(f"{row.offset}\\n" for row in rows.collect())
"""


def test_queries_in_spark_go_on_by_themselves(spark: SparkSession, data_dir: DataDir, tmp_path: Path) -> None:
    """A worker is killed, a query fails for a while, another for ever, and a planner is killed; all rows come once."""
    data_dir.create("t")
    data_dir.fill("t", 0, 20)
    home = tmp_path / "project"
    home.mkdir()
    (home / "pipeline.py").write_text(PIPELINE)
    (home / "pipeline.toml").write_text(
        f'name = "p"\nkind = "continuous"\n[broker]\npath = "{data_dir.root}"\n'
        "[restart]\nattempts = 3\nfirst_seconds = 0.1\nlongest_seconds = 0.1\n"
    )
    said: list[str] = []
    stopped = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            continuous.run(spark, load(str(home), {}), stopped, said.append)
        except BaseException as error:  # noqa: BLE001 - for the assertion below
            failures.append(error)

    runner = threading.Thread(target=run)
    runner.start()
    try:
        until(lambda: any("bad is QUARANTINED after 3 failures" in line for line in said), 120)
        until(lambda: offsets(home, "good") == list(range(20)), 60)
        assert (home / "killed").exists()
        assert not any("good is RESTARTING" in line for line in said)  # the task was run again, and that was enough
        until(lambda: offsets(home, "recovers") == list(range(20)), 60)
        assert said.count("Flow recovers is RUNNING again.") == 2
        kill_planners()
        data_dir.fill("t", 0, 5)
        until(lambda: offsets(home, "good") == list(range(25)), 120)
        assert any("good is RESTARTING" in line for line in said) and "Flow good is RUNNING again." in said
    finally:
        stopped.set()
        runner.join(60)
    assert not failures


def offsets(home: Path, name: str) -> list[int]:
    path = home / name
    return sorted(map(int, path.read_text().split())) if path.exists() else []


def kill_planners() -> None:
    """The Python processes in which Spark asks our source for offsets."""
    killed = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_planner_of(entry, os.getpid()):
            os.kill(int(entry.name), signal.SIGKILL)
            killed += 1
    assert killed


def _is_planner_of(entry: Path, ancestor: int) -> bool:
    try:
        if b"streaming_source_runner" not in (entry / "cmdline").read_bytes():
            return False
        pid = int(entry.name)
        while pid > 1:
            if pid == ancestor:
                return True
            pid = int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return False
