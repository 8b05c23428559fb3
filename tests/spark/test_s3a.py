"""Tables in an object store, as the page on clusters has it: a broker that puts them there, executors of a cluster that
read them through Hadoop's S3 file system, and streams with result and checkpoint in the store. The jars come from Maven
and the store is moto's (`make test-s3`); where they are not, this is skipped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from deltalake import DeltaTable
from tests.cli.test_up import FLIGHT
from tests.launcher import BrokerProcess
from tests.ports import steady_port
from tests.snippets import snippets
from tests.spark.cluster import MASTER, PAGE, Cluster, replaced
from tests.spark.java import needs_java

from penstock.clients.rustlog import Client
from penstock.flight.connect import connect

BUILD = Path(__file__).parents[2] / "build"
JARS = BUILD / "hadoop-aws"
MOTO = BUILD / "s3-venv" / "bin" / "moto_server"
needs_s3 = pytest.mark.skipif(
    not ((JARS / ".ready").exists() and MOTO.exists()), reason="hadoop-aws and moto are not in build/ (make test-s3)"
)
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
SMALL = {"PENSTOCK_TABLES__ENABLED": "true", "PENSTOCK_LOG__FILE_BYTES": "64KiB", "PENSTOCK_LOG__TAIL_BYTES": "0"}
START_SECONDS = 120.0

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
}
"""Of sessions on a small cluster, beside those of the page."""

SEEN = """
import json

found = {
    "files": sorted({name.partition("://")[0] for name in orders.inputFiles()}),
    "counts": [tuple(row) for row in orders.groupBy("partition").count().orderBy("partition").collect()],
    "hosts": spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1,
}
print("found", json.dumps(found))
spark.stop()
"""
"""After the page's last program."""


@contextmanager
def moto() -> Iterator[str]:
    """An object store with the bucket `lake`; its address."""
    port = steady_port()
    endpoint = f"http://127.0.0.1:{port}"
    with subprocess.Popen([str(MOTO), "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while True:
                try:
                    urlopen(Request(f"{endpoint}/lake", method="PUT"), timeout=10).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline and process.poll() is None, "moto does not come up"
                    time.sleep(0.2)
            yield endpoint
        finally:
            process.kill()


def programs() -> list[str]:
    """The programs of the page, from one `import penstock.spark` to the next: each is a process."""
    found: list[str] = []
    for snippet in snippets(PAGE):
        if snippet.language == "python" and not snippet.why_not:
            if snippet.text.startswith("import penstock.spark\n"):
                found.append("")
            found[-1] += snippet.text
    return found


def configuration() -> str:
    [found] = [snippet.text for snippet in snippets(PAGE) if snippet.language == "toml"]
    return found


def run(program: str, places: Mapping[str, str], directory: Path) -> str:
    """Its output."""
    done = subprocess.run(
        [sys.executable, "-c", replaced(program, places)],
        capture_output=True,
        text=True,
        timeout=500,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=directory,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


def fill(broker: BrokerProcess) -> None:
    """Records of which most are in the table soon, and the rest in the log alone."""
    with Client(*broker.endpoint("rustlog")) as client:
        client.create_topic("orders", 2)
        for number in range(20):
            client.produce("orders", 0, [b"%04096d" % number])
        for number in range(33):
            client.produce("orders", 1, [b"%04096d" % number])
    deadline = time.monotonic() + START_SECONDS
    log = connect({"bootstrap.servers": broker.address("flight")})
    while (info := log.table("orders")) is None or not DeltaTable.is_deltatable(info.url, info.options):
        assert time.monotonic() < deadline, "there is no table"
        time.sleep(0.5)


@needs_java
@needs_s3
@pytest.mark.spark
def test_the_page_on_clusters_with_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    first, second = programs()
    (tmp_path / "cluster").mkdir()
    with moto() as endpoint, Cluster(tmp_path / "cluster") as cluster:
        settings = tmp_path / "penstock.toml"
        settings.write_text(replaced(configuration(), {"http://store:9000": endpoint}))
        flags = ("--config", str(settings), *FLIGHT)
        with BrokerProcess(tmp_path / "data", *flags, **SMALL | CREDENTIALS).ready() as broker:
            fill(broker)
            own = {"spark.master": cluster.url, **SETTINGS}
            places = {
                f'"spark.master": "{MASTER}"': ", ".join(f'"{key}": "{value}"' for key, value in own.items()),
                "10.0.0.2:8815": broker.address("flight"),
                "http://store:9000": endpoint,
            }
            alone = {'"spark.executor.cores": "2"': '"spark.executor.cores": "1"', "/shared": str(tmp_path)}
            said = run(first, places | alone, tmp_path)
            assert "|        1|   33|" in said
            store = {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
            copied = DeltaTable("s3://lake/orders", storage_options=store).to_pyarrow_table()
            assert Counter(copied["partition"].to_pylist()) == {0: 20, 1: 33}
            said = run(second + SEEN, places | {"/opt/hadoop-aws": str(JARS)}, tmp_path)
    *shown, last = said.splitlines()
    assert "|        1|   33|" in shown and "53" in shown
    assert json.loads(last.removeprefix("found ")) == {"files": ["s3a"], "counts": [[0, 20], [1, 33]], "hosts": 2}
