"""The snippets of the pages that need nothing but a broker, run as they stand there, all beside the same one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess
from tests.snippets import PORTS, Reader, snippets

import penstock

DOCS = Path(__file__).parents[2] / "docs"

PAGES = (
    "explanation/doors.md",
    "how-to/back-up.md",
    "how-to/configure.md",
    "how-to/consumer-groups.md",
    "how-to/debug.md",
    "how-to/exactly-once.md",
    "how-to/monitor.md",
    "how-to/queues.md",
    "how-to/tables.md",
    "how-to/tls.md",
    "protocols/blipmq.md",
    "protocols/felix.md",
    "protocols/flymq.md",
    "protocols/kimberlite.md",
    "protocols/rustlog.md",
    "cache.md",
    "schemas.md",
    "sql.md",
)
SECURED_PAGES = ("how-to/secure.md", "security.md")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    doors = ("--listen", "felix=127.0.0.1:0", "--listen", "flight=127.0.0.1:0")
    with BrokerProcess(tmp_path_factory.mktemp("pages") / "data", "--durability", "written", *doors) as running:
        yield running.ready()


@pytest.mark.parametrize("page", PAGES)
def test_a_page(broker: BrokerProcess, tmp_path: Path, page: str) -> None:
    ports = {port: broker.endpoint(doors[0])[1] for port, doors in PORTS.items()}
    Reader(tmp_path, ports, {"PENSTOCK_SERVER": broker.address("rustlog")}).follow(snippets(DOCS / page))
    with penstock.connect(broker.address("rustlog")) as db:  # the next page begins with nothing
        for topic in db.admin.topics.list():
            db.admin.topics.delete(topic.name)


@pytest.mark.parametrize("page", SECURED_PAGES)
def test_a_page_with_security_on(tmp_path: Path, page: str) -> None:
    with BrokerProcess(tmp_path / "data", PENSTOCK_SECURITY__MODE="on") as broker:
        ports = {"9092": broker.ready().endpoint("rustlog")[1]}
        Reader(tmp_path, ports, {"PENSTOCK_DATA_DIR": str(tmp_path / "data")}).follow(snippets(DOCS / page))
