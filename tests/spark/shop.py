"""Orders and page views for tests of whole pipelines, what must come of them, and the commands that run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from tests.launcher import COMMAND, WITHOUT_SETTINGS, BrokerProcess

from penstock.clients.rustlog import Client
from penstock.spark.pipelines.scaffold import write_project

MINUTE = "2026-03-01T10:%02d:%02d.000Z"
QUICK = "\n[spark.conf]\n" + "\n".join(
    f'"{key}" = "{value}"'
    for key, value in {
        "spark.driver.memory": "700m",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.pollingDelay": "10ms",
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
    }.items()
)
"""Settings for little data on a small machine."""

Result = dict[tuple[str, str], tuple[int, Decimal]]


def order(number: int, minute: int) -> bytes:
    product = ("anvil", "birdseed")[number % 2]
    return json.dumps(
        {
            "order_id": f"order-{number}",
            "product": product,
            "quantity": number % 3 + 1,
            "price": 2.5,
            "ordered_at": MINUTE % (minute, number % 60),
            "customer": "somebody",
        }
    ).encode()


def page_view(number: int) -> bytes:
    when = MINUTE % (0, number % 60)
    return json.dumps({"view_id": f"view-{number}", "page": "/", "viewed_at": when}).encode()


def payment(number: int, minute: int) -> bytes:
    """Of the order with this number."""
    return json.dumps(
        {
            "payment_id": f"payment-{number}",
            "order_id": f"order-{number}",
            "customer": "somebody",
            "amount": (number % 3 + 1) * 2.5,
            "paid_at": MINUTE % (minute, number % 60),
        }
    ).encode()


def revenue(orders: Iterator[bytes]) -> Result:
    """(minute, product) → orders and revenue."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    sums: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for text in orders:
        event = json.loads(text)
        key = event["ordered_at"][:16], event["product"]
        counts[key] += 1
        sums[key] += event["quantity"] * Decimal(str(event["price"]))
    return {key: (counts[key], sums[key]) for key in counts}


def project(directory: Path, kind: str, address: str) -> Path:
    """The project that `penstock pipeline init` writes, with settings for tests."""
    write_project(str(directory), "shop", "declarative" if kind == "declarative" else "continuous", address)
    file = directory / "pipeline.toml"
    file.write_text(file.read_text().partition("\n[spark.conf]")[0] + QUICK)
    return directory


def pipeline(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "pipeline", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=WITHOUT_SETTINGS | {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"} | environment,
    )


def run(*arguments: object, seconds: float = 480, code: int = 0) -> str:
    """A command to its end; what it printed."""
    process = pipeline(*arguments)
    try:
        out, _ = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert process.returncode == code, out
    return out


def values(broker: BrokerProcess, topic: str, partitions: int = 1) -> list[bytes]:
    """All records of a topic; none if it is not there."""
    found = []
    with Client(*broker.endpoint("rustlog")) as client:
        if topic not in {summary.name for summary in client.list_topics()}:
            return []
        for partition in range(partitions):
            offset = 0
            while records := (reply := client.fetch(topic, partition, offset, 1 << 20)).records:
                found += [record.payload for record in records]
                offset = reply.next_offset
    return found
