"""A real Kafka cluster in KRaft mode, of one or more nodes on this machine, from the jars that `make test-kafka` gets.

Nodes can be killed, stopped for a while and started again; what they stored stays.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.ports import steady_port

JARS = os.environ.get("PENSTOCK_TEST_KAFKA_JARS", "")
CLUSTER_ID = "cGVuc3RvY2stdGVzdHMtMQ"  # Kafka's form: 16 bytes in base64
START_SECONDS = 240  # on a machine that has much else to do
_JAVA_OPTIONS = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"),
)

_PROPERTIES = """
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{advertised}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
num.network.threads=2
num.io.threads=2
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
replica.lag.time.max.ms=3000
controller.quorum.request.timeout.ms=10000
"""


class Link(NamedTuple):
    """A port of a node under another address: that of a proxy, which can be cut."""

    port: int
    advertised: int


class Node:
    def __init__(
        self,
        directory: Path,
        number: int,
        port: int,
        controller: int,
        voters: str,
        links: Sequence[Link] = (),
        more: str = "",
    ) -> None:
        self.directory, self.number, self.port, self.links = directory, number, port, links
        directory.mkdir(parents=True)
        self._properties = directory / "server.properties"
        self._properties.write_text(
            (_PROPERTIES + more).format(
                node=number,
                voters=voters,
                port=port,
                controller=controller,
                logs=directory / "logs",
                listeners="".join(f",LINK{n}://127.0.0.1:{link.port}" for n, link in enumerate(links)),
                advertised="".join(f",LINK{n}://127.0.0.1:{link.advertised}" for n, link in enumerate(links)),
                protocols="".join(f",LINK{n}:PLAINTEXT" for n in range(len(links))),
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    def format(self) -> subprocess.Popen[bytes]:
        command = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties))
        return self._java("64m", *command)

    def start(self) -> None:
        self._process = self._java("256m", "kafka.Kafka", str(self._properties))

    def _java(self, heap: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.directory / "output.txt").open("ab") as output:
            return subprocess.Popen(
                ["java", f"-Xmx{heap}", *_JAVA_OPTIONS, "-cp", f"{JARS}/*", *command],
                stdout=output,
                stderr=output,
                cwd=self.directory,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def runs(self) -> bool:
        return self._process is not None

    def processor_seconds(self) -> float:
        """Since it was started."""
        if self._process is None:
            return 0.0
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Cluster:
    def __init__(self, directory: Path, nodes: int, links: int = 0, more: str = "") -> None:
        """Each node has so many ports more, under other addresses. `more` are properties besides those above."""
        ports = [(steady_port(), steady_port()) for _ in range(nodes)]
        voters = ",".join(f"{n}@127.0.0.1:{controller}" for n, (_, controller) in enumerate(ports, 1))
        self.nodes = [
            Node(
                *(directory / f"node-{n}", n, port, controller, voters),
                [Link(steady_port(), steady_port()) for _ in range(links)],
                more,
            )
            for n, (port, controller) in enumerate(ports, 1)
        ]
        self.servers = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def __enter__(self) -> Cluster:
        for formatting in [node.format() for node in self.nodes]:
            assert formatting.wait(START_SECONDS) == 0, self._output()
        for node in self.nodes:
            node.start()
        try:
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()

    def mend(self) -> None:
        """Start the nodes that were killed, and wait until all are members."""
        for node in self.nodes:
            if not node.runs:
                node.start()
        self.wait()

    def wait(self) -> None:
        """Until all nodes are members."""
        give_up = time.monotonic() + START_SECONDS
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        while True:
            try:
                if len(admin.list_topics(timeout=2).brokers) == len(self.nodes):
                    return
            except KafkaException:
                pass
            assert time.monotonic() < give_up, self._output()
            time.sleep(0.2)

    def processor_seconds(self) -> float:
        """Of all nodes, since they were started."""
        return sum(node.processor_seconds() for node in self.nodes)

    def leader(self, topic: str) -> Node:
        """The node that has the lead of a topic of one partition."""
        number = self._partition(topic).leader
        return next(node for node in self.nodes if node.number == number)

    def in_sync(self, topic: str) -> int:
        """Copies of it that have everything."""
        return len(self._partition(topic).isrs)

    def _partition(self, topic: str) -> Any:
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        return admin.list_topics(topic, timeout=START_SECONDS).topics[topic].partitions[0]

    def _output(self) -> str:
        return "\n".join((node.directory / "output.txt").read_text()[-3000:] for node in self.nodes)
