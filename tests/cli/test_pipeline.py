"""`penstock pipeline` without Spark: what it writes, what it says, and how it fails."""

from __future__ import annotations

from pathlib import Path

from tests.launcher import penstock

from penstock.spark.pipelines.location import PipelineLocation, RunState


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
    state.phase, state.ended, state.error = "failed", 1090.0, "no luck\nat all"
    with PipelineLocation(str(tmp_path / "shop" / "state")) as place:
        place.write(state)
    assert "failed at" in (after := penstock("pipeline", "status", folder).stdout)
    assert "after 90 s: no luck" in after and "at all" not in after


def test_after_the_end_of_a_run_nothing_in_it_runs_any_more(tmp_path: Path) -> None:
    penstock("pipeline", "init", "shop", "--directory", str(tmp_path / "shop"))
    state = RunState(4711, "declarative", 0.0, "local[2]", phase="stopped", ended=9.0)
    state.flows = {"orders": "completed", "bad_orders": "running", "revenue": "queued"}
    with PipelineLocation(str(tmp_path / "shop" / "state")) as place:
        place.write(state)
    said = penstock("pipeline", "status", str(tmp_path / "shop")).stdout
    assert "stopped at" in said and "completed" in said
    assert "running" not in said and "queued" not in said
