"""A pipeline's project folder: what init writes, what pipeline.toml may say, and where things are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.pipelines.java import JavaMissing, find_java, major_version
from penstock.spark.pipelines.location import (
    PipelineBusy,
    PipelineLocation,
    RunState,
    is_running,
    read_state,
    wait_for_orphan,
)
from penstock.spark.pipelines.project import ENV_BROKER, ENV_DIRECTORY, Project, ProjectError, current, load
from penstock.spark.pipelines.scaffold import write_project
from penstock.spark.pipelines.session import configuration, remote

MINIMAL = 'name = "p"\nkind = "continuous"\n[broker]\n"bootstrap.servers" = "127.0.0.1:8815"\n'


def project(directory: Path, text: str = MINIMAL, **environment: str) -> Project:
    (directory / "pipeline.toml").write_text(text)
    return load(str(directory), environment)


def test_what_init_writes_can_be_loaded(tmp_path: Path) -> None:
    written = write_project(str(tmp_path / "shop"), "shop", "declarative", "broker:1")
    assert "spark-pipeline.yml" in written and {"events.py", "gold.py", "transformations/bronze.py"} <= set(written)
    loaded = load(str(tmp_path / "shop"), {})
    assert loaded.file.kind == "declarative"
    assert loaded.broker == {"bootstrap.servers": "broker:1"}
    assert loaded.topics["dead_letters"] == "shop.dead_letters"
    for name in written:
        assert name.endswith(".py") or "{name}" not in (tmp_path / "shop" / name).read_text(), name


def test_init_does_not_write_over_anything(tmp_path: Path) -> None:
    write_project(str(tmp_path / "a"), "a", "continuous")
    with pytest.raises(ProjectError, match="holds a pipeline already"):
        write_project(str(tmp_path / "a"), "a", "continuous")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("precious")
    with pytest.raises(ProjectError, match="is not empty"):
        write_project(str(tmp_path / "b"), "b", "continuous")
    with pytest.raises(ProjectError, match="no name for a pipeline"):
        write_project(str(tmp_path / "c"), "../c", "continuous")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "pipeline.toml"),
        ('name = "p"\nkind = "sometimes"\n[broker]\n', "sometimes"),
        (MINIMAL.replace("name", "nmae"), "nmae"),
        ('name = "p"\nkind = "continuous"\n[broker]\n', "needs one of"),
        (MINIMAL + 'path = "data"\n', "needs one of"),
        (MINIMAL + 'password = "${SECRET}"\n', "SECRET, which is not set"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ProjectError, match=said):
        project(tmp_path, text)


def test_a_folder_without_the_file_is_no_pipeline(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="penstock pipeline init"):
        load(str(tmp_path), {})


def test_secrets_come_from_the_environment_and_an_address_can_be_replaced(tmp_path: Path) -> None:
    text = 'name = "p"\nkind = "continuous"\n[broker]\npath = "../data"\npassword = "a${SECRET}b"\n'
    assert project(tmp_path, text, SECRET="x").broker == {"path": str(tmp_path.parent / "data"), "password": "axb"}
    replaced = project(tmp_path, text, SECRET="x", **{ENV_BROKER: "other:9"}).broker
    assert replaced == {"bootstrap.servers": "other:9", "password": "axb"}


def test_the_running_code_finds_its_project(tmp_path: Path) -> None:
    project(tmp_path)
    assert current({ENV_DIRECTORY: str(tmp_path)}).name == "p"


def test_everything_is_kept_in_one_place(tmp_path: Path) -> None:
    made = project(tmp_path, 'place = "over there"\n' + MINIMAL)
    place = str(tmp_path / "over there")
    assert made.place == made.local == place
    assert made.table("a/b") == f"{place}/tables/a%2Fb"
    assert made.checkpoint("q") == f"file://{place.replace(' ', '%20')}/checkpoints/q"
    remote_place = project(tmp_path, 'place = "s3://bucket/p"\n' + MINIMAL)
    assert remote_place.warehouse == "s3://bucket/p/warehouse"
    assert remote_place.local == str(tmp_path / "state")


def test_spark_is_told_what_a_pipeline_needs_and_the_project_wins(tmp_path: Path) -> None:
    text = MINIMAL + '[spark.conf]\n"spark.sql.shuffle.partitions" = 7\n"spark.ui.enabled" = true\n'
    settings = configuration(project(tmp_path, text), "local[2]")
    assert settings["spark.sql.catalogImplementation"] == "hive"
    assert str(tmp_path / "state" / "catalog") in settings["spark.hadoop.javax.jdo.option.ConnectionURL"]
    assert settings["spark.sql.streaming.stateStore.providerClass"].endswith("RocksDBStateStoreProvider")
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in configuration(project(tmp_path), "spark://somewhere:7077")


def test_tables_of_a_declarative_pipeline_in_delta(tmp_path: Path) -> None:
    """With the connector that the tests use, unless the project brings jars of its own."""
    text = MINIMAL.replace("continuous", "declarative")
    assert "spark.sql.sources.default" not in configuration(project(tmp_path, text), "local[2]")
    settings = configuration(project(tmp_path, text + '[spark]\nformat = "delta"\n'), "local[2]")
    assert settings["spark.sql.sources.default"] == "delta"
    assert settings["spark.sql.catalog.spark_catalog"].endswith("DeltaCatalog")
    pom = (Path(__file__).parent / "delta_connector" / "pom.xml").read_text()
    group, artifact, version = settings["spark.jars.packages"].split(":")
    assert f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>" in pom
    text += '[spark]\nformat = "delta"\n[spark.conf]\n"spark.jars" = "/jars/delta.jar"\n'
    assert "spark.jars.packages" not in configuration(project(tmp_path, text), "local[2]")
    with pytest.raises(ProjectError, match="format"):
        project(tmp_path, MINIMAL + '[spark]\nformat = "iceberg"\n')


def test_a_connect_server_is_taken_from_the_environment_unless_a_master_is_given() -> None:
    assert remote({"SPARK_REMOTE": "sc://a"}, None) == "sc://a"
    assert remote({"SPARK_REMOTE": "sc://a"}, "local[2]") is None
    assert remote({}, "sc://b:15002") == "sc://b:15002"
    assert remote({}, None) is None


def test_one_run_at_a_time(tmp_path: Path) -> None:
    assert not is_running(str(tmp_path))
    with PipelineLocation(str(tmp_path)) as place:
        place.write(RunState(4711, "continuous", 0.0, "local[2]"))
        assert is_running(str(tmp_path))
        with (
            pytest.raises(PipelineBusy, match="process 4711 is running this pipeline"),
            PipelineLocation(str(tmp_path)),
        ):
            pass
    assert not is_running(str(tmp_path))
    state = read_state(str(tmp_path))
    assert state is not None and state.pid == 4711
    with PipelineLocation(str(tmp_path)):
        assert is_running(str(tmp_path))


def test_an_orphaned_jvm_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = [True, True, False]
    slept: list[float] = []
    monkeypatch.setattr("penstock.spark.pipelines.location._runs", lambda _pid, _program: alive.pop(0))
    assert wait_for_orphan(RunState(1, "continuous", 0.0, "local[2]", jvm=99), slept.append)
    assert len(slept) == 2
    monkeypatch.setattr("penstock.spark.pipelines.location._runs", lambda _pid, _program: True)
    assert not wait_for_orphan(RunState(1, "continuous", 0.0, "local[2]", jvm=99), slept.append)
    assert wait_for_orphan(None, slept.append)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no such thing", None),
    ],
)
def test_which_java_it_is(text: str, version: int | None) -> None:
    assert major_version(text) == version


@pytest.mark.process
def test_a_missing_or_old_java_is_told_with_the_package_to_install(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=r"none was found on PATH(.|\n)*openjdk-17-jre-headless"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaMissing, match="has no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path)})
    fake = tmp_path / "java"
    fake.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    fake.chmod(0o755)
    with pytest.raises(JavaMissing, match="is Java 11"):
        find_java({"PATH": str(tmp_path)})
    fake.write_text("#!/bin/sh\necho 'openjdk version \"17.0.2\"' >&2\n")
    assert find_java({"PATH": str(tmp_path)}).version == 17
