"""The files in deploy/: they name doors, ports, paths and settings that the broker has."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.config.layers import load
from penstock.config.listen import bind_plan
from penstock.config.settings import DOOR_NAMES, UDP_DOORS, Settings
from penstock.log.kafka.url import parse
from penstock.server.doors import BUILT
from penstock.server.errors import StartFailed
from penstock.server.exposure import refuse_exposed_doors

DEPLOY = Path(__file__).parent.parent / "deploy"
PORTS = {
    int(getattr(Settings().listen, door).rpartition(":")[2])
    for door in DOOR_NAMES
    if getattr(Settings().listen, door) != "off"
}
UDP_PORTS = {int(getattr(Settings().listen, door).rpartition(":")[2]) for door in UDP_DOORS}


def containerfile() -> str:
    return (DEPLOY / "Containerfile").read_text()


def environment() -> dict[str, str]:
    """The settings of the container."""
    return dict(
        re.findall(r"\b(PENSTOCK_[A-Z_]+)=(\S+)", containerfile().partition("\nENV ")[2].partition("\nUSER")[0])
    )


def kubernetes(file: str = "penstock.yaml") -> dict[str, Any]:
    """Kind → object; of several of a kind the last."""
    return {found["kind"]: found for found in yaml.safe_load_all((DEPLOY / "kubernetes" / file).read_text())}


def test_the_container_opens_every_door_to_the_network() -> None:
    settings = load(file=None, environment=environment(), flags={}).settings
    for door in DOOR_NAMES:
        default = getattr(Settings().listen, door)
        if default != "off":
            assert getattr(settings.listen, door) == default.replace("127.0.0.1", "0.0.0.0"), door
    exposed = set(re.findall(r"\d+(?:/udp)?", containerfile().partition("\nEXPOSE ")[2].partition("\n")[0]))
    assert exposed == {f"{port}/udp" if port in UDP_PORTS else str(port) for port in PORTS}


def test_the_container_does_not_start_open_to_everybody_unless_told() -> None:
    for extra, refused in (({}, True), ({"PENSTOCK_SECURITY__INSECURE_OK": "true"}, False)):
        settings = load(file=None, environment=environment() | extra, flags={}).settings
        plan = bind_plan(settings, BUILT)
        if refused:
            with pytest.raises(StartFailed):
                refuse_exposed_doors(settings.security, plan)
        else:
            refuse_exposed_doors(settings.security, plan)


def test_the_composition_publishes_every_port_on_this_machine_only() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    published = services["penstock"]["ports"]
    assert set(published) == {f"127.0.0.1:{port}:{port}" + "/udp" * (port in UDP_PORTS) for port in PORTS}
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert set(services["penstock"]["environment"]) <= {"PENSTOCK_SECURITY__INSECURE_OK"}


def test_three_brokers_on_three_nodes_have_one_journal_and_ports_of_their_own() -> None:
    services = yaml.safe_load((DEPLOY / "compose-kafka.yaml").read_text())["services"]
    nodes = [name for name in services if name.startswith("kafka-")]
    brokers = [services[name] for name in services if name.startswith("penstock-")]
    assert len(nodes) == len(brokers) == 3
    published = [port for broker in brokers for port in broker["ports"]]
    assert len(set(published)) == len(published) == 3 * len(PORTS)
    assert all(port.startswith("127.0.0.1:") for port in published)
    for number, broker in enumerate(brokers):
        assert set(broker["ports"]) == {
            f"127.0.0.1:{port + 10_000 * number}:{port}" + "/udp" * (port in UDP_PORTS) for port in PORTS
        }
        settings = load(file=None, environment=environment() | broker["environment"], flags={}).settings
        address = parse(settings.storage.url)
        assert address.servers == ",".join(f"{name}:9092" for name in nodes)
        assert f"tables:{settings.tables.url}" in broker["volumes"]
        refuse_exposed_doors(settings.security, bind_plan(settings, BUILT))
    assert re.search(r"^confluent-kafka==", (DEPLOY.parent / "requirements/kafka.txt").read_text(), re.MULTILINE)


def test_brokers_of_a_journal_on_kafka_reach_each_other(tmp_path: Path) -> None:
    found = kubernetes("penstock-kafka.yaml")
    objects = list(yaml.safe_load_all((DEPLOY / "kubernetes/penstock-kafka.yaml").read_text()))
    names = {each["metadata"]["name"] for each in objects if each["kind"] == "Service"}
    broker = found["StatefulSet"]["spec"]
    container = broker["template"]["spec"]["containers"][0]
    assert broker["replicas"] == 3 and broker["serviceName"] == "penstock-brokers"
    advertised = next(each["value"] for each in container["env"] if each["name"] == "PENSTOCK_STORAGE__ADVERTISE")
    assert advertised.removeprefix("$(POD).") == broker["serviceName"] and names == {"penstock", broker["serviceName"]}
    file = tmp_path / "penstock.toml"
    file.write_text(found["ConfigMap"]["data"]["penstock.toml"])
    settings = load(file=str(file), environment=environment(), flags={}).settings
    assert parse(settings.storage.url).name == "penstock" and settings.tables.url.startswith("s3://")
    assert {port["containerPort"] for port in container["ports"]} == PORTS
    refuse_exposed_doors(settings.security, bind_plan(settings, BUILT))


def test_the_manifests_agree_with_each_other_and_with_the_broker(tmp_path: Path) -> None:
    found = kubernetes()
    container = found["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    ports = {port["name"]: port for port in container["ports"]}
    assert {port["containerPort"] for port in ports.values()} == PORTS
    assert {port["containerPort"] for port in ports.values() if port.get("protocol") == "UDP"} == UDP_PORTS
    for port in found["Service"]["spec"]["ports"]:
        assert port["port"] == ports[port["targetPort"]]["containerPort"]
        assert port.get("protocol") == ports[port["targetPort"]].get("protocol")
    for rule in found["NetworkPolicy"]["spec"]["ingress"]:
        assert all(port["port"] in ports for port in rule["ports"])
    probes = {container[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert probes == {"/health/ready", "/health/live"}
    file = tmp_path / "penstock.toml"
    file.write_text(found["ConfigMap"]["data"]["penstock.toml"])
    settings = load(file=str(file), environment=environment(), flags={}).settings
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert settings.data_dir == mounts["data"] and settings.security.mode == "on"
    refuse_exposed_doors(settings.security, bind_plan(settings, BUILT))


@pytest.mark.process
def test_the_unit_of_systemd_is_one(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this machine")
    unit = (DEPLOY / "systemd/penstock.service").read_text()
    file = tmp_path / "penstock.service"
    file.write_text(unit.replace("/opt/penstock/bin/penstock", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""
