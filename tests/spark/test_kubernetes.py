"""A pipeline on Spark's own scheduler for Kubernetes, by the command and the settings of the page on clusters: pods as
it makes them, run as processes by a stand-in for the API server (`kubernetes.py`)."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from tests.cli.test_up import FLIGHT
from tests.launcher import BrokerProcess
from tests.snippets import snippets
from tests.spark import shop
from tests.spark.cluster import PAGE
from tests.spark.java import needs_java
from tests.spark.kubernetes import Kubernetes

from penstock.clients.rustlog import Client

pytestmark = [needs_java, pytest.mark.spark]

MASTER = "k8s://https://API-SERVER:6443"  # as the page has it
SETTINGS = {
    "spark.kubernetes.container.image": "registry.example/penstock:1",
    "spark.kubernetes.namespace": "jobs",
    "spark.kubernetes.authenticate.driver.serviceAccountName": "runner",
    "spark.executor.instances": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.pyspark.python": sys.executable,
}
"""The settings of the page's table, with values for this machine."""
TESTS = {
    "spark.driver.memory": "700m",
    "spark.scheduler.minRegisteredResourcesRatio": "1",  # both executors have to be there, however long that takes
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "240s",
}
PIPELINE = """
import os

from pyspark.sql.functions import col, udf

from penstock.spark import into_topic

pod = udf(lambda value: f"{os.environ['SPARK_EXECUTOR_POD_NAME']} {value.decode()}")


def start(spark, pipeline):
    rows = spark.readStream.format("penstock").options(**pipeline.broker).option("subscribe", "orders")
    rows = rows.option("startingOffsets", "earliest").load().select("key", pod(col("value")).alias("value"))
    writer = rows.writeStream.queryName("copies").option("checkpointLocation", pipeline.checkpoint("copies"))
    writer = writer.foreachBatch(into_topic("copies", app="copies", **pipeline.broker))
    return [writer.trigger(availableNow=True).start()]
"""


def project(directory: Path, address: str) -> Path:
    directory.mkdir()
    settings = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in (SETTINGS | TESTS).items())
    (directory / "pipeline.py").write_text(PIPELINE)
    (directory / "pipeline.toml").write_text(
        f'name = "shop"\nkind = "continuous"\n[broker]\n"bootstrap.servers" = "{address}"\n[spark.conf]\n{settings}\n'
    )
    return directory


def test_the_pages_table_is_what_is_tested() -> None:
    section = PAGE.read_text().partition("## Kubernetes")[2].partition("\n## ")[0]
    named = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([^`]+)`", " ".join(named))) == set(SETTINGS)


def test_executors_are_pods(tmp_path: Path) -> None:
    """Two executors read a topic's partitions, each one; their pods have what the settings say, and are gone at the
    end."""
    [command] = [each.text for each in snippets(PAGE) if MASTER in each.text and not each.why_not]
    written = [b"order-%d" % number for number in range(200)]
    with BrokerProcess(tmp_path / "data", *FLIGHT).ready() as broker, Kubernetes(tmp_path / "pods") as kubernetes:
        with Client(*broker.endpoint("rustlog")) as client:
            client.create_topic("orders", 2)
            client.produce("orders", 0, written[:100])
            client.produce("orders", 1, written[100:])
        shop_project = str(project(tmp_path / "shop", broker.address("flight")))
        words = [{"shop": shop_project, MASTER: kubernetes.url}.get(word, word) for word in shlex.split(command)[2:]]
        shop.run(*words)
        copies = [value.split(b" ") for value in shop.values(broker, "copies")]
        assert kubernetes.created and not kubernetes.things  # everything was deleted
    pods = kubernetes.pods()
    assert sorted(value for _, value in copies) == sorted(written)
    where = {pod: {value in written[:100] for name, value in copies if name == pod} for pod, _ in copies}
    assert where.keys() == {pod["metadata"]["name"].encode() for pod in pods}, [kubernetes.log(pod) for pod in pods]
    assert sorted(map(list, where.values())) == [[False], [True]]  # a partition each
    for pod in pods:
        [container] = pod["spec"]["containers"]
        assert pod["metadata"]["namespace"] == SETTINGS["spark.kubernetes.namespace"]
        assert pod["spec"]["serviceAccountName"] == "runner"
        assert container["image"] == SETTINGS["spark.kubernetes.container.image"]
        assert container["resources"]["requests"]["cpu"] == "1"
