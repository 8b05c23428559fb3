"""`penstock pipeline` without Spark: what it writes, what it says, and how it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.launcher import COMMAND, penstock
from typer.testing import CliRunner

from penstock.cli import pipeline
from penstock.spark.pipelines.location import RESTART, RUNNER, FlowTrouble, PipelineLocation, RunState, restart_is_due


def test_init_says_what_to_do_next(tmp_path: Path) -> None:
    done = penstock("pipeline", "init", "shop", "--directory", str(tmp_path / "shop"), "--kind", "continuous")
    assert done.returncode == 0
    assert f"penstock pipeline run {tmp_path / 'shop'}" in done.stdout
    assert (tmp_path / "shop" / "pipeline.py").is_file()
    again = penstock("pipeline", "init", "shop", "--directory", str(tmp_path / "shop"))
    assert again.returncode == 1 and "holds a pipeline already" in again.stderr
    assert penstock("pipeline", "init", "x", "--kind", "odd").returncode == 2


def test_a_folder_that_is_no_pipeline(tmp_path: Path) -> None:
    for command in ("run", "dry-run", "status"):
        done = penstock("pipeline", command, str(tmp_path))
        assert done.returncode == 1
        assert "is no pipeline" in done.stderr and "penstock pipeline init" in done.stderr


def test_without_java_it_says_which_package_to_install(tmp_path: Path) -> None:
    penstock("pipeline", "init", "shop", "--directory", str(tmp_path / "shop"))
    done = penstock("pipeline", "run", str(tmp_path / "shop"), PATH=str(tmp_path), JAVA_HOME="")
    assert done.returncode == 1
    assert "Java 17" in done.stderr and "openjdk-17-jre-headless" in done.stderr


def test_a_full_refresh_is_for_declarative_pipelines(tmp_path: Path) -> None:
    penstock("pipeline", "init", "shop", "--directory", str(tmp_path / "shop"), "--kind", "continuous")
    done = penstock("pipeline", "run", str(tmp_path / "shop"), "--full-refresh", "orders")
    assert done.returncode == 2 and "declarative" in done.stderr


def test_status_before_during_and_after_a_run(tmp_path: Path) -> None:
    folder = str(tmp_path / "shop")
    penstock("pipeline", "init", "shop", "--directory", folder)
    assert "has never run" in penstock("pipeline", "status", folder).stdout
    state = RunState(4711, "declarative", 1000.0, "local[2]", phase="running", flows={"orders": "running"})
    with PipelineLocation(str(tmp_path / "shop" / "state")) as place:
        place.write(state)
        during = penstock("pipeline", "status", folder).stdout
        assert "running, process 4711 on local[2]" in during and "orders" in during
    assert "killed, process 4711" in penstock("pipeline", "status", folder).stdout
    state.phase, state.ended, state.error = (
        "failed",
        1090.0,
        "said: Traceback (most recent call last):\n  x\nError: no luck\nat all",
    )
    with PipelineLocation(str(tmp_path / "shop" / "state")) as place:
        place.write(state)
    assert "failed at" in (after := penstock("pipeline", "status", folder).stdout)
    assert "after 90 s: Error: no luck" in after and "at all" not in after


def test_after_the_end_of_a_run_nothing_in_it_runs_any_more(tmp_path: Path) -> None:
    penstock("pipeline", "init", "shop", "--directory", str(tmp_path / "shop"))
    state = RunState(4711, "declarative", 0.0, "local[2]", phase="stopped", ended=9.0)
    state.flows = {"orders": "completed", "bad_orders": "running", "revenue": "queued"}
    with PipelineLocation(str(tmp_path / "shop" / "state")) as place:
        place.write(state)
    said = penstock("pipeline", "status", str(tmp_path / "shop")).stdout
    assert "stopped at" in said and "completed" in said
    assert "running" not in said and "queued" not in said


def continuous(tmp_path: Path) -> str:
    folder = str(tmp_path / "shop")
    penstock("pipeline", "init", "shop", "--directory", folder, "--kind", "continuous")
    return folder


def test_status_tells_what_failed_and_says_it_to_programs(tmp_path: Path) -> None:
    folder = continuous(tmp_path)
    text = "Spark said\nTraceback (most recent call last):\n  File x\nValueError: no luck\n"
    state = RunState(4711, "continuous", 1000.0, "local[2]", phase="running", flows={"orders": "quarantined"})
    state.troubles = {"orders": FlowTrouble(4, text)}
    with PipelineLocation(str(tmp_path / "shop" / "state")) as place:
        place.write(state)
        said = penstock("pipeline", "status", folder).stdout
        assert "quarantined" in said and "orders: 4 restarts; last failure: ValueError: no luck" in said
        document = json.loads(penstock("pipeline", "status", folder, "--output", "json").stdout)
    assert document["running"] is True and document["run"]["phase"] == "running"
    [flow] = document["flows"]
    assert (flow["flow"], flow["state"], flow["restarts"], flow["error"]) == ("orders", "quarantined", 4, text)


def test_logs_are_shown_from_their_end(tmp_path: Path) -> None:
    folder = continuous(tmp_path)
    assert "has never run" in penstock("pipeline", "logs", folder).stderr
    (tmp_path / "shop" / "state").mkdir()
    (tmp_path / "shop" / "state" / "spark.log").write_text("".join(f"line {number}\n" for number in range(99)))
    assert penstock("pipeline", "logs", folder, "--lines", "2").stdout == "line 97\nline 98\n"
    assert len(penstock("pipeline", "logs", folder).stdout.splitlines()) == 50


def test_logs_are_followed_until_somebody_has_enough(tmp_path: Path) -> None:
    folder = continuous(tmp_path)
    (tmp_path / "shop" / "state").mkdir()
    log = tmp_path / "shop" / "state" / "spark.log"
    log.write_text("before\n")
    process = subprocess.Popen([*COMMAND, "pipeline", "logs", folder, "--follow"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "before\n"
        with log.open("a") as stream:
            stream.write("after\n")
        assert process.stdout.readline() == "after\n"
        log.rename(log.with_suffix(".log.1"))  # as the next run does with a large one
        log.write_text("of the next run\n")
        assert process.stdout.readline() == "of the next run\n"
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_looking_and_resetting_take_no_password(tmp_path: Path) -> None:
    """Whoever operates a pipeline does not need what its code connects with."""
    folder = continuous(tmp_path)
    file = tmp_path / "shop" / "pipeline.toml"
    file.write_text(file.read_text().replace("[broker]", '[broker]\npassword = "${NOT_SET_ANYWHERE}"', 1))
    checkpoint = tmp_path / "shop" / "state" / "checkpoints" / "orders"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text('v1\n{"batchTimestampMs":1}\n{"orders": {"0": 3}}')
    (checkpoint / "commits" / "0").write_text("v1\n{}")
    (tmp_path / "shop" / "state" / "spark.log").write_text("a line\n")
    assert "orders/0" in penstock("pipeline", "status", folder).stdout
    assert penstock("pipeline", "logs", folder).stdout == "a line\n"
    assert "not running" in penstock("pipeline", "stop", folder).stdout
    assert penstock("pipeline", "report", folder).returncode == 0
    assert penstock("pipeline", "reset", folder, "--yes").returncode == 0
    assert "NOT_SET_ANYWHERE, which is not set" in penstock("pipeline", "run", folder).stderr


def test_stop_ends_the_runner_and_nobody_else(tmp_path: Path) -> None:
    """A process that looks like the runner, and one that only has its number."""
    folder = continuous(tmp_path)
    assert "not running" in penstock("pipeline", "stop", folder).stdout
    state = tmp_path / "shop" / "state"
    with PipelineLocation(str(state)) as place:
        place.write(RunState(os.getpid(), "continuous", 1000.0, "local[2]"))  # an earlier run's, and its number again
        done = penstock("pipeline", "stop", folder)
        assert done.returncode == 3 and "only just starting" in done.stderr
    code = (
        "import os, sys, time\n"
        "from penstock.spark.pipelines.location import PipelineLocation, RunState\n"
        f"with PipelineLocation({str(state)!r}) as place:\n"
        "    place.write(RunState(os.getpid(), 'continuous', 1.0, 'local[2]'))\n"
        "    print('here', flush=True)\n"
        "    time.sleep(600)\n"
    )
    runner = subprocess.Popen([sys.executable, "-c", code, RUNNER], stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    try:
        assert runner.stdout.readline() == "here\n"
        assert "stopped" in penstock("pipeline", "stop", folder).stdout
        assert runner.wait(60) == -signal.SIGTERM
    finally:
        runner.kill()
        runner.communicate()


RUNNER_CODE = """
import os, sys, time
from penstock.spark.pipelines.location import PipelineLocation, RunState
with PipelineLocation(sys.argv[1]) as place:
    place.write(RunState(os.getpid(), "continuous", 1.0, "local[2]"))
    print("here", flush=True)
    time.sleep(600)
"""


def test_restart_waits_for_the_next_run(tmp_path: Path) -> None:
    """A process that looks like the runner, and a driver that starts another as `penstock pipeline run` does."""
    folder, state = continuous(tmp_path), tmp_path / "shop" / "state"
    idle = penstock("pipeline", "restart", folder)
    assert idle.returncode == 3 and "pipeline run" in idle.stderr
    command = [sys.executable, "-c", RUNNER_CODE, str(state), RUNNER]
    runners = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True)]
    try:
        assert runners[0].stdout is not None and runners[0].stdout.readline() == "here\n"
        asking = subprocess.Popen([*COMMAND, "pipeline", "restart", folder], stdout=subprocess.PIPE, text=True)
        assert runners[0].wait(60) == -signal.SIGTERM
        assert restart_is_due(str(state)) and not restart_is_due(str(state))
        runners.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        said, _ = asking.communicate(timeout=60)
        assert f"process {runners[1].pid} goes on where process {runners[0].pid} was" in said
    finally:
        for runner in runners:
            runner.kill()
            runner.communicate()


def test_a_run_that_was_asked_to_restart_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`penstock pipeline run`, with runs that end at once: the first was asked to restart, the second to stop."""
    folder, state = continuous(tmp_path), tmp_path / "shop" / "state"
    runs: list[int] = []

    class Ended:
        log = ""

        def __init__(self, *_: object) -> None:
            runs.append(len(runs))
            state.mkdir(exist_ok=True)
            if len(runs) == 1:
                (state / RESTART).touch()

        def events(self, _: float) -> None:
            return None

        def close(self) -> int:
            return 0

    monkeypatch.setattr(pipeline, "Driver", Ended)
    monkeypatch.setattr(pipeline, "find_java", lambda _: "")
    done = CliRunner().invoke(pipeline.app, ["run", folder])
    assert (done.exit_code, runs) == (0, [0, 1]), done.output


def test_reset_begins_anew_what_it_is_told(tmp_path: Path) -> None:
    folder = continuous(tmp_path)
    assert "nothing to remove" in penstock("pipeline", "reset", folder, "--yes").stdout
    state = tmp_path / "shop" / "state"
    for name in ("orders", "page_views"):
        (state / "checkpoints" / name / "offsets").mkdir(parents=True)
        (state / "tables" / name).mkdir(parents=True)
    (state / "tables" / "orders_quarantine").mkdir()
    asked = penstock("pipeline", "reset", folder, "--flow", "orders")
    assert asked.returncode == 1 and "nothing was changed" in asked.stderr
    assert str(state / "tables" / "orders_quarantine") in asked.stdout
    missing = penstock("pipeline", "reset", folder, "--flow", "order", "--yes")
    assert missing.returncode == 1 and "there are: orders, page_views" in missing.stderr
    with PipelineLocation(str(state)):
        busy = penstock("pipeline", "reset", folder, "--yes")
        assert busy.returncode == 1 and "is running this pipeline" in busy.stderr
    assert penstock("pipeline", "reset", folder, "--flow", "orders", "--yes").returncode == 0
    assert sorted(path.name for path in (state / "tables").iterdir()) == ["page_views"]
    assert sorted(path.name for path in (state / "checkpoints").iterdir()) == ["page_views"]
    assert penstock("pipeline", "reset", folder, "--keep-tables", "--yes").returncode == 0
    assert list((state / "checkpoints").iterdir()) == [] and (state / "tables" / "page_views").is_dir()


def test_a_declarative_pipeline_is_refreshed_and_not_reset(tmp_path: Path) -> None:
    penstock("pipeline", "init", "shop", "--directory", str(tmp_path / "shop"))
    done = penstock("pipeline", "reset", str(tmp_path / "shop"), "--yes")
    assert done.returncode == 2 and "--full-refresh-all" in done.stderr
