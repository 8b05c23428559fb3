"""Log lines of a day without trouble: JSON where there is no terminal, and none that would wake anybody."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.launcher import BrokerProcess

from penstock.clients.blipmq import Client as BlipMqClient
from penstock.clients.felix import FelixClient
from penstock.clients.flymq import Client as FlyMqClient
from penstock.clients.kimberlite import KimberliteClient
from penstock.clients.rustlog import Client as RustLogClient


def use_every_door(broker: BrokerProcess, topic: str) -> None:
    with RustLogClient(*broker.endpoint("rustlog")) as rustlog:
        rustlog.create_topic(topic, 1)
        rustlog.produce(topic, 0, [b"a", b"b"])
        rustlog.fetch(topic, 0, 0)
    with BlipMqClient(*broker.endpoint("blipmq"), key="any") as blipmq:
        blipmq.publish(topic, b"c")
    with FlyMqClient(*broker.endpoint("flymq")) as flymq:
        flymq.produce(topic, b"d")
    with KimberliteClient(broker.address("kimberlite")) as kimberlite:
        kimberlite.append_many(kimberlite.create_stream(f"{topic}-events"), [[b"e"]])
    with FelixClient(broker.address("felix"), insecure=True) as felix:
        felix.publish(topic, b"f")


def test_start_use_and_stop_alarm_nobody(tmp_path: Path) -> None:
    flags = ("--log-level", "debug", "--listen", "felix=127.0.0.1:0")
    # A machine that runs other tests too may hold up anybody's event loop, which is told as a warning.
    with BrokerProcess(tmp_path, *flags) as broker:
        broker.ready()
        for topic in ("first", "second"):
            use_every_door(broker, topic)
        left_open = RustLogClient(*broker.endpoint("rustlog"))
        with left_open:
            left_open.produce("first", 0, [b"g"])
            broker.signal(signal.SIGTERM)
            code, _, said = broker.finish()
    assert code == 0
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line for line in lines if line["level"] in ("warning", "error", "critical")] == []
    assert all({"event", "level", "logger", "timestamp"} <= line.keys() for line in lines)
