"""Dashboard, alerts and their page: every metric that they name is in a scrape of a broker that runs."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.launcher import BrokerProcess

from penstock.clients.rustlog import Client

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Name of a sample → its labels, of a broker that somebody used."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        with Client(*broker.ready().endpoint("rustlog")) as client:
            client.create_topic("t", 1)
            client.produce("t", 0, [b"v"])
            client.commit_offset("g", "t", 0, 0)
            with pytest.raises(Exception, match="7"):
                client.produce("t", 7, [b"v"])
        with urllib.request.urlopen(f"http://{broker.address('http')}/metrics") as answer:
            text = answer.read().decode()
    families = text_string_to_metric_families(text)
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def alerts() -> dict[str, str]:
    """Name → expression."""
    rules = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in rules for rule in group["rules"]}


def expressions() -> Iterator[str]:
    yield from alerts().values()
    dashboard = json.loads((DEPLOY / "grafana/penstock.json").read_text())
    for panel in dashboard["panels"]:
        assert panel["targets"], panel["title"]
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard["templating"]["list"]:
        yield from re.findall(r"label_values\((.*),", variable["query"])


@pytest.mark.process
def test_every_metric_of_the_dashboard_and_of_the_alerts_is_there(scraped: dict[str, set[str]]) -> None:
    named = {name for text in expressions() for name in re.findall(r"\bpenstock_\w+", text)}
    assert len(named) > 20
    assert named - set(scraped) == set()


@pytest.mark.process
def test_what_they_group_by_are_labels(scraped: dict[str, set[str]]) -> None:
    given = {"instance", "job", "le"}  # by Prometheus, and of histograms
    for text in expressions():
        for labels, metric in re.findall(r"by \(([\w, ]+)\) .*?(penstock_\w+)", text):
            assert set(labels.split(", ")) <= scraped[metric] | given, text


def test_prometheus_is_told_of_the_broker_of_the_composition_and_of_the_alerts() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    host, port = job["static_configs"][0]["targets"][0].split(":")
    assert f"127.0.0.1:{port}:{port}" in services[host]["ports"]
    assert all((DEPLOY / "prometheus" / name).exists() for name in config["rule_files"])
    assert all(f'job="{job["job_name"]}"' in text for text in expressions() if "job=" in text)
    for service in services.values():
        for volume in service["volumes"]:
            if volume.startswith("./"):
                assert (DEPLOY / volume.partition(":")[0]).exists(), volume


@pytest.mark.process
def test_the_reference_has_every_metric_of_a_scrape(scraped: dict[str, set[str]]) -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    for name, labels in scraped.items():
        row = re.search(rf"^\| `{re.sub(r'_(bucket|sum|count)$', '', name)}` .*$", page, re.MULTILINE)
        assert row is not None, name
        assert labels - {"le"} <= set(re.findall(r"`(\w+)`", row[0].split("|")[3])), name


def test_the_page_says_for_each_alert_what_to_do() -> None:
    page = (ROOT / "docs/how-to/monitor.md").read_text()
    assert re.findall(r"^### (Penstock\w+)", page, re.MULTILINE) == list(alerts())
