"""Administration, SQL, tables and caches through `penstock.connect`, against a broker with every door."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest
from tests.launcher import BrokerProcess

import penstock
from penstock.clients import http
from penstock.connection import Connection, DoorClosed, TableUnreadable


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    listen = ("--listen", "flight=127.0.0.1:0", "--listen", "felix=127.0.0.1:0")
    with BrokerProcess(tmp_path_factory.mktemp("api"), *listen) as broker:
        yield broker.ready().address("kimberlite")


@pytest.fixture
def db(address: str) -> Iterator[Connection]:
    with penstock.connect(address, timeout=60) as connection:
        yield connection


def test_topics(db: Connection) -> None:
    topics = db.admin.topics
    assert topics.create("topics/a b", partitions=2, expiry_seconds=60).partitions == 2
    assert [each.end for each in topics.get("topics/a b").partitions] == [0, 0]
    with pytest.raises(http.Conflict):
        topics.create("topics/a b")
    db.produce("topics/a b", b"v", partition=1)
    assert topics.get("topics/a b").partitions[1].end == 1
    assert topics.set("topics/a b", expiry_seconds=None, retention_bytes=1000)["retention_bytes"] == 1000
    assert [each.name for each in topics.list("topics/")] == ["topics/a b"]
    topics.delete("topics/a b")
    with pytest.raises(http.NotFound) as missing:
        topics.get("topics/a b")
    assert (missing.value.status, missing.value.code) == (404, "topic_not_found")
    with pytest.raises(http.ReplyError, match="retention"):
        topics.create("other", retention_bytes=-1)


def test_groups(db: Connection) -> None:
    db.produce_many("lagging", [b"1", b"2", b"3"])
    with db.consume("lagging", "late", auto_commit=False) as consumer:
        consumer.poll(1)
        consumer.commit()
    groups = db.admin.groups
    assert groups.get("late", "lagging").lag == 2
    assert [each.lag for each in groups.list() if each.group == "late"] == [2]
    planned = groups.reset("late", "lagging", "earliest", dry_run=True)
    assert ([(move.before, move.after) for move in planned.moves], planned.done) == ([(1, 0)], False)
    assert groups.reset("late", "lagging", 3).done
    assert groups.get("late", "lagging").lag == 0
    groups.reset("late", "lagging", datetime.now(UTC) - timedelta(hours=1))
    assert groups.get("late", "lagging").lag == 3
    groups.delete("late", "lagging")
    with pytest.raises(http.NotFound):
        groups.get("late", "lagging")


def test_users_keys_roles_and_lists(db: Connection) -> None:
    admin = db.admin
    assert admin.users.create("ann", "a long password", ["consumer"]).roles == ("consumer",)
    admin.users.update("ann", roles=["producer"], enabled=False)
    admin.users.set_password("ann", "another password")
    assert (admin.users.get("ann").roles, admin.users.get("ann").enabled) == (("producer",), False)
    admin.roles.set("clerk", ["read"], "reads")
    assert [role.description for role in admin.roles.list() if role.name == "clerk"] == ["reads"]
    admin.acls.set("secret", users=["ann"], roles=["clerk"], restrict=True)
    assert admin.acls.get("secret").users == ("ann",)
    assert [acl.topic for acl in admin.acls.list()] == ["secret"]
    admin.acls.delete("secret")
    key = admin.keys.create("ci", ["read"], topics=["a*"], expires=datetime.now(UTC) + timedelta(days=1))
    other = admin.keys.rotate(key.key.id)
    assert other.secret != key.secret
    admin.keys.revoke(other.key.id)
    assert {each.state for each in admin.keys.list()} == {"revoked"}
    admin.users.delete("ann")
    admin.roles.delete("clerk")
    assert admin.users.list() == []
    assert admin.identity().security is False


def test_schemas_and_tenants(db: Connection) -> None:
    schemas = db.admin.schemas
    assert schemas.register("shape", '{"type": "object", "required": ["n"]}').version == 1
    assert schemas.validate("shape", 1, b'{"n": 1}').valid
    assert schemas.validate("shape", 1, b"{}").reasons
    schemas.set_compatibility("shape", "none")
    assert schemas.register("shape", b'{"type": "string"}').version == 2
    assert schemas.get("shape", 2).definition == b'{"type": "string"}'
    assert [(each.name, each.mode) for each in schemas.list()] == [("shape", "none")] * 2
    schemas.delete("shape")
    assert db.admin.tenants.create("acme", "Acme Ltd").label == "Acme Ltd"
    assert "acme" in [tenant.name for tenant in db.admin.tenants.list()]
    db.admin.tenants.delete("acme")


def test_sql(db: Connection) -> None:
    db.produce_many("sales", ['{"item": "anvil", "price": 40}', '{"item": "bell", "price": 7}'])
    position = db.admin.info().position
    db.sql("CREATE TABLE people (id BIGINT PRIMARY KEY, name VARCHAR)")
    inserted = db.sql("INSERT INTO people VALUES ($1, $2)", [1, "Ada"])
    assert inserted.dicts()[0]["rows_affected"] == 1
    result = db.sql("SELECT item, price FROM sales WHERE price > $1 ORDER BY price", [5])
    assert (result.columns, result.rows, len(result)) == (["item", "price"], [("bell", 7), ("anvil", 40)], 2)
    assert list(result) == result.rows
    assert result.arrow().column("price").to_pylist() == [7, 40]
    assert list(result.pandas()["item"]) == ["bell", "anvil"]
    db.produce("sales", '{"item": "crane", "price": 900}')
    assert db.sql("SELECT count(*) FROM sales").scalar() == 3
    assert db.sql("SELECT count(*) FROM sales", at=position).scalar() == 2
    moment = next(record.time for record in db.consume("sales", start=2, follow=False))
    for zone in (UTC, timezone(timedelta(hours=5, minutes=30))):
        before = (moment - timedelta(microseconds=1)).astimezone(zone)
        assert db.sql("SELECT count(*) FROM sales;", at=before).scalar() == 2
        assert db.sql("SELECT count(*) FROM sales", at=moment.astimezone(zone)).scalar() == 3
    with pytest.raises(ValueError, match="only what reads"):
        db.sql("INSERT INTO people VALUES (2, 'Bo')", at=moment)
    assert db.sql("SELECT item FROM sales WHERE price < 0").rows == []
    with pytest.raises(http.ReplyError, match="nowhere"):
        db.sql("SELECT * FROM nowhere")


def test_a_table_has_all_records_as_columns(db: Connection) -> None:
    db.admin.topics.create("wide", partitions=2)
    db.produce_many("wide", [b"%d" % number for number in range(10)], keys=[b"%d" % n for n in range(10)])
    table = db.table("wide")
    assert sorted(table.column("value").to_pylist()) == [b"%d" % number for number in range(10)]
    assert db.table("wide", ["offset"]).column_names == ["offset"]
    with pytest.raises(TableUnreadable, match="nowhere"):
        db.table("nowhere")


def test_a_cache(db: Connection) -> None:
    cache = db.cache("c")
    cache.put("a", "1", ttl=60)
    assert (cache.get("a"), cache.get("b")) == (b"1", None)
    assert cache.compare_and_set("a", "2", b"3") == (False, b"1")
    assert cache.compare_and_set("a", "1", b"3").stored
    assert cache.increment("n", 5) == 5
    assert (cache.delete("a"), cache.delete("a")) == (True, False)
    assert db.cache("other").get("n") is None


def test_a_door_that_is_closed_is_told(broker: BrokerProcess) -> None:
    with penstock.connect(broker.address("http")) as db:
        with pytest.raises(DoorClosed, match="no felix door"):
            db.cache()
        with pytest.raises(DoorClosed, match="no flight door"):
            db.table("t")


def test_the_same_with_asyncio(address: str) -> None:
    async def main() -> None:
        async with await penstock.aconnect(address, timeout=60) as db:
            await db.admin.topics.create("aio", partitions=2)
            await db.produce("aio", '{"n": 1}')
            assert (await db.sql("SELECT n FROM aio")).rows == [(1,)]
            assert (await db.table("aio")).num_rows == 1
            cache = await db.cache()
            await cache.put("k", "v")
            assert await cache.get("k") == b"v"
            assert await cache.increment("n") == 1
            assert (await cache.compare_and_set("x", None, "y")).stored
            assert await cache.delete("x")
            names = [door.name for door in await db.admin.doors()]
            assert {"felix", "flight", "http"} <= set(names)

    asyncio.run(main())


def test_another_tenant_and_namespace(address: str, db: Connection) -> None:
    with penstock.connect(address, timeout=60, tenant="acme", namespace="sales") as acme:
        acme.produce("scoped", b'{"n": 1}', headers={"a": b"b"})
        with acme.producer() as producer:
            producer.send("scoped", b'{"n": 2}')
        with acme.transaction() as transaction:
            transaction.produce("scoped", b'{"n": 3}', headers={"c": b"d"})
        acme.produce("scoped", b'{"n": 4}', ttl=60, headers={"e": b"f"})
        with acme.consume("scoped", group="g", follow=False) as consumer:
            found = list(consumer)
        assert [record.value for record in found] == [b'{"n": %d}' % number for number in (1, 2, 3, 4)]
        assert [record.headers for record in found] == [(("a", b"b"),), (), (("c", b"d"),), (("e", b"f"),)]
        assert acme.sql("SELECT sum(n) FROM scoped").scalar() == 10
        assert acme.table("scoped").num_rows == 4
        assert [topic.name for topic in acme.admin.topics.list("scoped")] == ["scoped"]
        assert [group.group for group in acme.admin.groups.list()] == ["g"]
        acme.cache("c").put("k", b"theirs")
        assert acme.cache("c").get("k") == b"theirs" and db.cache("c").get("k") is None
        with pytest.raises(DoorClosed, match="tenant `default` only"):
            acme.queue("scoped", "workers")
    assert db.admin.topics.list("scoped") == []


def test_another_tenant_with_asyncio(address: str) -> None:
    async def main() -> None:
        async with await penstock.aconnect(address, timeout=60, tenant="acme", namespace="async") as acme:
            await acme.produce("scoped", b"1", headers={"a": b"b"})
            await acme.produce("scoped", b"2", delay=0.01, headers={"c": b"d"})
            async with acme.transaction() as transaction:
                await transaction.produce("scoped", b"3", headers={"e": b"f"})
            seen = {}
            async for record in acme.consume("scoped"):
                seen[record.value] = record.headers
                if len(seen) == 3:
                    break
            assert seen == {b"1": (("a", b"b"),), b"2": (("c", b"d"),), b"3": (("e", b"f"),)}

    asyncio.run(main())
