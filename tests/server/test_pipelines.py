"""Pipelines as the administration API shows them: read from their folders, without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.admin.api_peer import api_peer
from tests.broker.broker_fixture import BrokerFixture

from penstock.admin.environment import Environment
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.security.audit_event import AuditPolicy
from penstock.config.settings import Settings
from penstock.server.pipelines import pipeline_scopes, pipeline_views, restart_pipeline
from penstock.spark.pipelines.location import FlowTrouble, PipelineLocation, RunState
from penstock.spark.pipelines.scaffold import write_project


def project(data_dir: Path) -> Path:
    """A pipeline that has read 3 of the 5 records of `orders`, and runs."""
    write_project(str(data_dir / "pipeline"), "shop", "continuous", "127.0.0.1:8815")
    query = data_dir / "pipeline" / "state" / "checkpoints" / "totals"
    for name in ("offsets", "commits"):
        (query / name).mkdir(parents=True)
    offsets = json.dumps({"orders": {"0": 3}})
    (query / "offsets" / "0").write_text(f'v1\n{{"batchTimestampMs":1700000000000}}\n{offsets}')
    (query / "commits" / "0").write_text("v1\n{}")
    return data_dir / "pipeline"


def test_a_pipeline_is_shown_with_its_queries_and_their_lag(tmp_path: Path) -> None:
    directory = project(tmp_path)
    fixture = BrokerFixture()
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "orders", 1)
    fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "orders", 0, [b"{}"] * 5)
    fixture.commit()
    environment = environment_of(tmp_path)
    with PipelineLocation(str(directory / "state")) as place:
        place.write(RunState(1, "continuous", 1.0, "local[2]", "running"))
        (shop,) = api_peer(fixture, environment=environment).ask("GET", "/api/v1/pipelines").json["items"]
    assert (shop["name"], shop["kind"], shop["running"], shop["phase"]) == ("shop", "continuous", True, "running")
    (query,) = shop["queries"]
    assert (query["name"], query["batch"], query["lag"]) == ("totals", 0, 2)
    assert query["partitions"] == [{"topic": "orders", "partition": 0, "position": 3, "lag": 2}]
    (shop,) = pipeline_views(Settings(), str(tmp_path), lambda *_: {})
    assert (shop.running, shop.phase) == (False, "killed")


def environment_of(tmp_path: Path) -> Environment:
    return Environment(
        pipelines=lambda ends: pipeline_views(Settings(), str(tmp_path), ends),
        pipeline_scopes=lambda: pipeline_scopes(Settings(), str(tmp_path)),
    )


def test_failures_of_queries_are_shown_and_of_an_ended_run_none_is_running(tmp_path: Path) -> None:
    """Also a query that failed before its first batch, which has no checkpoint."""
    directory = project(tmp_path)
    state = RunState(1, "continuous", 1.0, "local[2]", "running", flows={"totals": "running", "early": "quarantined"})
    state.troubles = {"early": FlowTrouble(4, "Spark said\nTraceback (most recent call last):\n  x\nValueError: no\n")}
    peer = api_peer(BrokerFixture(), environment=environment_of(tmp_path))
    with PipelineLocation(str(directory / "state")) as place:
        place.write(state)
        (shop,) = peer.ask("GET", "/api/v1/pipelines").json["items"]
        found = {each["name"]: (each["state"], each["restarts"], each["error"]) for each in shop["queries"]}
        assert found == {"early": ("quarantined", 4, "ValueError: no"), "totals": ("running", 0, "")}
        state.ended = 2.0
        place.write(state)
    (shop,) = peer.ask("GET", "/api/v1/pipelines").json["items"]
    assert {each["name"]: each["state"] for each in shop["queries"]} == {"early": "quarantined", "totals": "stopped"}


def test_lag_is_that_in_the_pipelines_own_tenant_and_needs_no_password(tmp_path: Path) -> None:
    file = project(tmp_path) / "pipeline.toml"
    scope = 'tenant = "acme"\npassword = "${NOT_SET_ANYWHERE}"\n'
    file.write_text(file.read_text().replace("[broker]", "[broker]\n" + scope, 1))
    fixture = BrokerFixture()
    for name, records in (("default", 5), ("acme", 9)):
        fixture.broker.topics.create(ANONYMOUS, Scope(name, "default"), "orders", 1)
        fixture.broker.produce.append(ANONYMOUS, Scope(name, "default"), "orders", 0, [b"{}"] * records)
    fixture.commit()
    (shop,) = api_peer(fixture, environment=environment_of(tmp_path)).ask("GET", "/api/v1/pipelines").json["items"]
    assert (shop["unreadable"], [query["lag"] for query in shop["queries"]]) == ("", [6])


def test_a_folder_that_cannot_be_read_says_why_and_none_is_none(tmp_path: Path) -> None:
    assert pipeline_views(Settings(), str(tmp_path), lambda *_: {}) == ()
    assert pipeline_scopes(Settings(), str(tmp_path)) == ()
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "pipeline.toml").write_text("name =")
    (broken,) = pipeline_views(Settings(), str(tmp_path), lambda *_: {})
    assert pipeline_scopes(Settings(), str(tmp_path)) == ()
    assert "pipeline.toml" in broken.unreadable


def test_a_restart_is_asked_of_whoever_runs_it_and_audited(tmp_path: Path) -> None:
    project(tmp_path)
    fixture = BrokerFixture(audit=AuditPolicy(enabled=True))
    asked: list[str] = []

    def restart(name: str) -> int | None:
        asked.append(name)
        return 4711 if len(asked) == 1 else restart_pipeline(Settings(), str(tmp_path), name)

    peer = api_peer(fixture, environment=Environment(restart_pipeline=restart))
    assert peer.ask("POST", "/api/v1/pipelines/shop/restart").json == {"name": "shop", "process": 4711}
    fixture.commit()
    (event,) = peer.ask("GET", "/api/v1/audit?types=pipeline").json["events"]
    assert (event["type"], event["resource"], event["result"]) == ("pipeline.restart", "shop", "success")
    idle = peer.ask("POST", "/api/v1/pipelines/shop/restart")
    assert (idle.status, idle.json["error"]["code"]) == (409, "pipeline_not_running")
    none = peer.ask("POST", "/api/v1/pipelines/other/restart")
    assert (none.status, none.json["error"]["code"]) == (404, "pipeline_not_found")


@pytest.mark.process
def test_nothing_of_spark_is_loaded(tmp_path: Path) -> None:
    project(tmp_path)
    code = (
        "import sys; from penstock.config.settings import Settings\n"
        "from penstock.server.pipelines import pipeline_views\n"
        "assert pipeline_views(Settings(), sys.argv[1], lambda *_: {}); "
        "print([name for name in sys.modules if name.split('.')[0] in ('pyspark', 'py4j')])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
