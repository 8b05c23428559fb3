"""Writes the stored data directory: `python -m tests.compatibility.generate DIRECTORY`, in a clone of the version that
is to write it, with the names of its modules in the imports.

It makes `data-directory-VERSION.tar.xz` and `expected-VERSION.json` in DIRECTORY. The broker is stopped once in order,
and killed at the end; what is expected is then read from a copy by the same version."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.compatibility.contents import (
    GUARDED,
    PARTITIONS,
    PASSWORDS,
    TENANT,
    guarded_contents,
    open_contents,
    running,
)
from tests.launcher import BrokerProcess

from penstock import __version__
from penstock.broker.names import DEFAULT_SCOPE
from penstock.clients.blipmq import Client as BlipMq
from penstock.clients.felix import FelixClient
from penstock.clients.flymq import Client as FlyMq
from penstock.clients.kimberlite import KimberliteClient
from penstock.clients.rustlog import Client as RustLog
from penstock.flight.client import FlightLog
from penstock.flight.options import BrokerOptions
from penstock.wire.kimberlite.messages import DataClass

YEARS = 30 * 365 * 86_400_000  # ms
NEAR = 15_000  # ms: after the broker was killed


def main(directory: Path) -> None:
    data, notes = directory / "data", dict[str, Any]()
    with running(data, "--listen", "flight=127.0.0.1:0") as broker:
        write_topics(broker)
        write_publications(broker)
        notes |= write_kimberlite(broker)
        write_felix(broker)
        fill(broker, data)
        notes["delayed"] = write_flymq(broker)  # delayed records keep their segment
        notes["queues"] = write_queues(broker)
        broker.signal(signal.SIGTERM)
        assert broker.finish()[0] == 0
    with (
        running(data, **GUARDED) as broker,
        FlyMq(*broker.endpoint("flymq"), username="alice", password=PASSWORDS["alice"]) as client,
    ):
        client.set_acl("salaries", users=["alice"], restrict=True)
        client.produce("salaries", b"much")
        client.produce_in_transaction(client.begin(), "moved", b"never committed")
        broker.signal(signal.SIGKILL)  # with a transaction open
        broker.finish()
    notes["until"] = int(time.time()) + 1
    time.sleep(NEAR / 1000)
    for path in (data / "admin.sock", data / "LOCK"):
        path.unlink(missing_ok=True)
    shutil.rmtree(data / "certificates")
    with tarfile.open(directory / f"data-directory-{__version__}.tar.xz", "w:xz", preset=9) as archive:
        archive.add(data, "data")
    expected: dict[str, Any] = {"version": __version__, "notes": notes}
    copy = directory / "copy"
    shutil.copytree(data, copy)
    with running(copy, **GUARDED) as broker:
        expected["guarded"] = guarded_contents(broker, notes)
    with running(copy) as broker:
        expected["open"] = open_contents(broker, notes)
    (directory / f"expected-{__version__}.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


def write_topics(broker: BrokerProcess) -> None:
    with RustLog(*broker.endpoint("rustlog")) as client:
        client.create_topic("orders", PARTITIONS)
        for partition in range(PARTITIONS):
            client.produce("orders", partition, [b"order %d of partition %d" % (n, partition) for n in range(20)])
        client.commit_offset("billing", "orders", 0, 7)
        client.commit_offset("billing", "orders", 1, 20)
        client.create_topic("deleted", 1)
        client.produce("deleted", 0, [b"gone"])
    with FlyMq(*broker.endpoint("flymq")) as flymq:
        flymq.delete_topic("deleted")


def write_publications(broker: BrokerProcess) -> None:
    """One that is published, and one that is staged only."""
    log = FlightLog(BrokerOptions((broker.endpoint("flight"),), DEFAULT_SCOPE), retries=1)
    for epoch in (0, 1):
        batch = pa.record_batch([pa.array([b"published %d" % epoch] * 3, pa.binary())], ["value"])
        staged = log.stage("application", epoch, "task", "published", iter([batch]), batch.schema)
        if epoch == 0:
            log.publish("application", epoch, [staged.ref])


def write_flymq(broker: BrokerProcess) -> dict[str, int]:
    """Returns the ids of delayed records."""
    with FlyMq(*broker.endpoint("flymq")) as client:
        for number in range(12):
            client.produce("keyed", b"value %d" % number, b"key %d" % (number % 4) if number % 3 else None)
        client.produce_with_ttl("keyed", b"expired", 1, b"short")
        client.produce_with_ttl("keyed", b"lives long", YEARS, b"long")
        client.produce("keyed", b"\xff\x00 not text")
        client.commit("keyed", "readers", 0, 5)
        client.subscribe("keyed", "others", 0, "earliest")
        delayed = {
            "far": client.produce_delayed("later", b"in thirty years", YEARS).offset,
            "near": client.produce_delayed("later", b"while nobody ran", NEAR).offset,
            "cancelled": client.produce_delayed("later", b"never", YEARS).offset,
        }
        client.cancel_delayed(delayed["cancelled"])
        client.produce("later", b"at once")
        committed = client.begin()
        for number in range(3):
            client.produce_in_transaction(committed, "moved", b"together %d" % number)
        client.commit_transaction(committed)
        rolled_back = client.begin()
        client.produce_in_transaction(rolled_back, "moved", b"rolled back")
        client.rollback_transaction(rolled_back)
        person = '{"type": "object", "properties": {"name": {"type": "string"}%s}, "required": ["name"]}'
        client.register_schema("person", "json", (person % "").encode())
        client.register_schema("person", "json", (person % ', "age": {"type": "integer"}').encode())
        client.set_compatibility("person", "backward")
        client.produce_with_schema("typed", "person", b'{"name": "Ada", "age": 36}')
        client.set_role("auditor", ["read"], "Reads everything")
        roles = {"alice": ["admin"], "bob": ["consumer"], "carol": ["auditor", "producer"], "dave": ["producer"]}
        for name, password in PASSWORDS.items():
            client.create_user(name, password, roles[name])
        client.update_user("dave", roles["dave"], enabled=False)
        client.set_acl("orders", users=["carol"], roles=["guest"])
        return delayed


def write_queues(broker: BrokerProcess) -> dict[str, int]:
    """Returns the ids of the subscriptions."""
    with BlipMq(*broker.endpoint("blipmq"), key="any") as client:
        jobs, failing = client.subscribe("jobs"), client.subscribe("failing")
        client.publish_many("jobs", [b"job %d" % number for number in range(10)])
        client.publish("failing", b"nobody can do this")
        client.flush()
        done = jobs.poll_many(4)
        jobs.ack(*[message.tag for message in done[:2]])
        deadline = time.monotonic() + 10
        deliveries = 0
        while time.monotonic() < deadline and deliveries < 2:  # twice, and never acknowledged
            deliveries += failing.poll() is not None
            time.sleep(0.05)
        time.sleep(1)
        assert failing.poll() is None
        client.flush()
        return {"jobs": jobs.id, "failing": failing.id}


def write_kimberlite(broker: BrokerProcess) -> dict[str, Any]:
    """Returns the keys, the position of the first insert, and the ids of the streams."""
    with KimberliteClient(broker.address("kimberlite"), tenant=TENANT) as client:
        client.create_tenant(TENANT, "clinic")
        stream = client.create_stream("journal", DataClass.FINANCIAL)
        client.append(stream, [b'{"kind": "%s", "n": %d}' % (b"odd" if n % 2 else b"even", n) for n in range(9)])
        with client.subscribe(stream, group="auditors", window=1) as subscription:
            for _ in range(4):
                assert subscription.next(timeout=10) is not None
        client.execute("CREATE TABLE people (id BIGINT PRIMARY KEY, name TEXT)")
        first = client.execute("INSERT INTO people VALUES ($1, $2)", [1, "Ada"])
        client.execute("INSERT INTO people VALUES ($1, $2)", [2, None])
        other = client.create_stream("journal", tenant=7)
        client.append(other, [b"of another tenant"], tenant=7)
        client.create_tenant(8, "deleted")
        client.delete_tenant(8)
        keys = {
            name: client.register_api_key(name, TENANT, [name]).key for name in ("user", "analyst", "auditor", "admin")
        }
        keys["rotated"] = keys["analyst"]
        keys["analyst"] = client.rotate_api_key(keys["analyst"]).new_key
        keys["revoked"] = client.register_api_key("revoked", TENANT, ["user"]).key
        client.revoke_api_key(keys["revoked"])
        return {"keys": keys, "first insert": first.log_offset, "streams": [stream, other]}


def write_felix(broker: BrokerProcess) -> None:
    with FelixClient(broker.address("felix"), tenant="acme", insecure=True) as client:
        client.publish_many("clicks", [b"click %d" % number for number in range(5)])
        client.cache_put("greeting", b"hello", cache="kept")
        client.cache_put("greeting", b"in memory only")
        client.cache_increment("counter", by=41, cache="kept")
        client.cache_put("deleted", b"x", cache="kept")
        client.cache_delete("deleted", cache="kept")


def fill(broker: BrokerProcess, data: Path) -> None:
    """Write until the first segments have become tables and are deleted."""
    with RustLog(*broker.endpoint("rustlog")) as client:
        client.create_topic("filler", 1)
        for first in range(0, 400, 20):
            client.produce("filler", 0, [b"%06d" % number + b"." * 800 for number in range(first, first + 20)])
    deadline = time.monotonic() + 60
    while min(path.name for path in (data / "journal").glob("*.journal")) < "00000000000000000002":
        assert time.monotonic() < deadline, "no segment became a table"
        time.sleep(0.1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
