"""The contents of the stored data directory, as clients of each door see them.

`open_contents` reads with security off, `guarded_contents` with security on. Both give plain values that JSON can hold:
the generator stores what the version that wrote the directory answers, the test compares it with the present one's.
Queues are emptied and delayed records cancelled by reading them, so a directory is read once."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.launcher import BrokerProcess

from penstock.clients.blipmq import Client as BlipMq
from penstock.clients.felix import FelixClient
from penstock.clients.flymq import Client as FlyMq
from penstock.clients.flymq import audit_query
from penstock.clients.kimberlite import KimberliteClient
from penstock.clients.rustlog import Client as RustLog

# Small files, so that records move to tables; no limit of time, because the directory grows old.
SETTINGS = {
    "PENSTOCK_TABLES__ENABLED": "true",
    "PENSTOCK_TABLES__CARE_SECONDS": "0.3",
    "PENSTOCK_TABLES__KEEP_SECONDS": "0",
    "PENSTOCK_LOG__FILE_BYTES": "64KiB",
    "PENSTOCK_LOG__SNAPSHOT_BYTES": "64KiB",
    "PENSTOCK_LOG__TAIL_BYTES": "0",
    "PENSTOCK_LOG__DURABILITY": "written",
    "PENSTOCK_QUEUES__TTL_SECONDS": "0",
    "PENSTOCK_QUEUES__CAPACITY": "0",
    "PENSTOCK_QUEUES__IDLE_SECONDS": "0",
    "PENSTOCK_QUEUES__ATTEMPTS": "2",
    "PENSTOCK_TOPICS__MAX_DELAY_SECONDS": "36500d",
    "PENSTOCK_CACHE__JOURNALLED": "*/*/kept",
    "PENSTOCK_SQL__START": "statement",
    "PENSTOCK_SECURITY__LOCKOUT_FAILURES": "0",
    "PENSTOCK_SECURITY__AUDIT": "on",
    "PENSTOCK_SECURITY__AUDIT_RETENTION_SECONDS": "36500d",
}
GUARDED = {"PENSTOCK_SECURITY__MODE": "on"}
PASSWORDS = {"alice": "the first one", "bob": "reads only", "carol": "has a role of her own", "dave": "is disabled"}
TENANT = 42  # of Kimberlite, by number
PARTITIONS = 3  # of `orders`
TOPICS = {"orders": PARTITIONS, "filler": 1, "keyed": 1, "later": 1, "moved": 1, "typed": 1, "jobs": 1, "published": 1}


@contextmanager
def running(data_dir: Path, *flags: str, **environment: str) -> Iterator[BrokerProcess]:
    with BrokerProcess(data_dir, "--listen", "felix=127.0.0.1:0", *flags, **SETTINGS | environment) as broker:
        try:
            yield broker.ready()
        except BaseException:
            if broker.process.poll() is None:
                broker.process.kill()
                print(broker.finish()[2])
            raise


def text(value: bytes | None) -> str | None:
    """Bytes as text that JSON can hold and that a person can read; long ones by their beginning and length."""
    if value is None:
        return None
    if len(value) > 200:
        return f"{text(value[:20])}... ({len(value)} bytes)"
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(value).decode()}"


def outcome(attempt: Callable[[], Any]) -> str:
    """`done`, or the name of the client's error."""
    try:
        attempt()
    except Exception as error:  # noqa: BLE001 - the clients' errors have five families
        return type(error).__name__
    return "done"


def open_contents(broker: BrokerProcess, notes: dict[str, Any]) -> dict[str, Any]:
    """Everything, as read by an administrator of everything. `notes`: what the generator remembers, such as ids."""
    with (
        RustLog(*broker.endpoint("rustlog"), dialect="json") as rustlog,
        FlyMq(*broker.endpoint("flymq")) as flymq,
        BlipMq(*broker.endpoint("blipmq"), key="any") as blipmq,
        KimberliteClient(broker.address("kimberlite"), tenant=TENANT) as kimberlite,
        FelixClient(broker.address("felix"), tenant="acme", insecure=True) as felix,
    ):
        return {
            "rustlog": _rustlog(rustlog),
            "flymq": _flymq(flymq, notes["delayed"]),
            "blipmq": _blipmq(blipmq, notes["queues"]),
            "kimberlite": _kimberlite(kimberlite, notes),
            "felix": _felix(felix),
        }


def _rustlog(client: RustLog) -> dict[str, Any]:
    found: dict[str, Any] = {"topics": {topic.name: topic.partition_count for topic in client.list_topics()}}
    for topic, partitions in TOPICS.items():
        for partition in range(partitions):
            records, offset = [], 0
            while page := client.fetch(topic, partition, offset, 100_000).records:
                records += [[record.offset, record.timestamp, text(record.payload)] for record in page]
                offset = page[-1].offset + 1
            if topic == "later":  # the delayed record appears when somebody opens the directory
                records = [[offset, value] for offset, _, value in records]
            found[f"{topic}/{partition}"] = records
        found[f"{topic} ends"] = [part.high_watermark for part in client.describe_topic(topic).partitions]
    found["billing"] = [client.fetch_offset("billing", "orders", partition) for partition in range(PARTITIONS)]
    return found


def _flymq(client: FlyMq, delayed: dict[str, int]) -> dict[str, Any]:
    keyed = client.fetch("keyed", 0, 0, 100).records
    groups = [
        [info.topic, info.group, [[at.partition, at.offset] for at in info.offsets]] for info in client.list_groups()
    ]
    lag = client.get_lag("keyed", "readers", 0)
    schemas = [[info.name, info.schema_type, info.version] for info in client.list_schemas()]
    latest = client.get_schema("person")
    verdict = client.validate_schema("person", b'{"name": 5}')
    return {
        "keyed": [[record.offset, text(record.key), text(record.value)] for record in keyed],
        "groups": sorted(groups),
        "lag": [lag.current, lag.committed, lag.latest, lag.lag],
        "schemas": schemas,
        "latest schema": [latest.version, latest.schema_id, text(latest.definition), latest.compatibility],
        "schema refuses": [verdict.valid, verdict.errors],
        "dead letters": [
            [letter.message_id, text(letter.value), letter.error, letter.retries]
            for letter in client.fetch_dlq("failing")
        ],
        "users": [[user.username, user.roles, user.permissions, user.enabled] for user in client.list_users()],
        "roles": [[role.name, role.permissions, role.description] for role in client.list_roles()],
        "acls": [[acl.topic, acl.public, acl.users, acl.roles] for acl in client.list_acls().entries],
        "cancel far": outcome(lambda: client.cancel_delayed(delayed["far"])),
        "cancel again": outcome(lambda: client.cancel_delayed(delayed["far"])),
        "cancel cancelled": outcome(lambda: client.cancel_delayed(delayed["cancelled"])),
    }


def _blipmq(client: BlipMq, queues: dict[str, int]) -> dict[str, Any]:
    """`jobs`: six messages wait, two are in flight and are delivered again. `failing`: its message is a dead letter."""
    found: dict[str, Any] = {}
    for topic, subscription in queues.items():
        queue = client.resume(subscription, topic)
        messages = []
        while (message := queue.poll()) is not None:
            messages.append([text(message.value), message.qos, message.tag])
            queue.ack(message.tag)
        found[topic] = messages
    client.flush()
    return found


def _kimberlite(client: KimberliteClient, notes: dict[str, Any]) -> dict[str, Any]:
    stream, other = notes["streams"]
    with client.subscribe(stream, group="auditors") as subscription:
        event = subscription.next(timeout=20)
        assert event is not None
    people = client.query("SELECT id, name FROM people ORDER BY id")
    before = client.query_at("SELECT id, name FROM people ORDER BY id", notes["first insert"])
    return {
        "stream": [stream, client.stream_info(stream), [text(event) for event in client.read(stream)]],
        "created again": outcome(lambda: client.create_stream("journal")),
        "auditors": [event.offset, text(event.data)],
        "people": people.rows,
        "people at first": before.rows,
        "events": client.query("SELECT kind, count(*) AS n FROM journal GROUP BY kind ORDER BY kind").rows,
        "tenants": [[tenant.tenant_id, tenant.name] for tenant in client.list_tenants()],
        "keys": [[key.subject, key.tenant_id, key.roles, key.expires_at_nanos] for key in client.list_api_keys()],
        "other tenant": [text(event) for event in client.read(other, tenant=7)],
    }


def _felix(client: FelixClient) -> dict[str, Any]:
    events: list[list[Any]] = []
    with client.subscribe("clicks", start="earliest") as subscription:
        while len(events) < 5 and (event := subscription.next(timeout=20)) is not None:
            events.append([event.offset, text(event.payload)])
    return {
        "clicks": events,
        "greeting": text(client.cache_get("greeting", cache="kept")),
        "counter": client.cache_increment("counter", cache="kept"),
        "deleted": text(client.cache_get("deleted", cache="kept")),
        "not journalled": text(client.cache_get("greeting")),
    }


def guarded_contents(broker: BrokerProcess, notes: dict[str, Any]) -> dict[str, Any]:
    """The permissions of each user and each key, and the audit log up to when the directory was written."""
    found: dict[str, Any] = {}
    address = broker.endpoint("flymq")
    for name, password in PASSWORDS.items():
        with FlyMq(*address, username=name, password=password) as client:
            found[name] = outcome(client.connect)
            if found[name] == "done":
                user = client.who_am_i()
                found[name] = {
                    "roles": user.roles,
                    "permissions": user.permissions,
                    "reads orders": outcome(lambda: client.fetch("orders", 0, 0, 1)),
                    "reads salaries": outcome(lambda: client.fetch("salaries", 0, 0, 1)),
                    "writes": outcome(lambda: client.produce("scratch", b"?")),
                }
    with FlyMq(*address, username="alice", password="wrong") as client:
        found["wrong password"] = outcome(client.connect)
    with FlyMq(*address, username="alice", password=PASSWORDS["alice"]) as client:
        page = client.query_audit(audit_query(end_s=notes["until"], limit=1000))
        found["audit"] = [[event.event_id, event.timestamp_ms, event.event_type, event.user, event.resource,
                           event.action, event.result] for event in page.events]  # fmt: skip
    for name, key in notes["keys"].items():
        with KimberliteClient(broker.address("kimberlite"), tenant=TENANT, token=key) as kimberlite:
            found[f"key {name}"] = outcome(kimberlite.connect)
        with BlipMq(*broker.endpoint("blipmq"), key=key) as blipmq:
            found[f"key {name} at BlipMQ"] = outcome(blipmq.connect)
    with KimberliteClient(broker.address("kimberlite"), tenant=TENANT, token=notes["keys"]["auditor"]) as kimberlite:
        found["audit chain"] = kimberlite.verify_audit_chain().ok
    return found
