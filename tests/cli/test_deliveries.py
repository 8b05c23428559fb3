"""`penstock group`, `queue`, `dlq`, `delayed` and `txn` against a broker with security on, from another machine's point
of view: as administrator, as a reader, and as nobody."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from tests.cli.secured import Secured, secured

import penstock


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("deliveries")) as running:
        yield running


def lines(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_a_group_is_listed_described_moved_and_forgotten(broker: Secured) -> None:
    broker.admin("topic", "create", "orders", "-p", "2")
    broker.admin("produce", "orders", "a", "b", "c", "--partition", "0")
    broker.admin("consume", "orders", "--group", "billing", "--limit", "2")
    assert ["billing", "orders", "0", "1"] in lines(broker.admin("group", "list"))
    assert lines(broker.admin("group", "lag"))[1:] == [["billing", "orders", "0", "2", "3", "1"]]
    assert lines(broker.admin("group", "lag", "--min", "2"))[1:] == []
    assert ["orders", "0", "2", "3", "1"] in lines(broker.admin("group", "describe", "billing"))
    assert json.loads(broker.admin("group", "describe", "billing", "orders", "-o", "json"))[0]["lag"] == 1

    reset = ("group", "reset", "billing", "orders", "--to", "earliest", "-p", "0")
    shown = [["partition", "before", "after"], ["0", "2", "0"]]
    assert lines(broker.admin(*reset, "--dry-run")) == shown
    assert broker.run("admin", *reset, stdin="n\n").returncode == 1
    assert broker.admin("group", "describe", "billing", "orders").splitlines()[1] == "orders\t0\t2\t3\t1"
    assert lines(broker.admin(*reset, "--yes")) == shown
    assert broker.admin("group", "describe", "billing", "orders").splitlines()[1] == "orders\t0\t0\t3\t3"
    broker.admin("group", "reset", "billing", "orders", "--to", "@-1h", "--yes")
    assert "deleted billing in orders" in broker.admin("group", "delete", "billing", "orders", "--yes")
    done = broker.run("admin", "group", "describe", "billing")
    assert done.returncode == 1 and "there is no group 'billing'" in done.stderr


def test_a_queue_gives_what_it_holds_once(broker: Secured) -> None:
    broker.admin("topic", "create", "jobs")
    take = ("queue", "take", "jobs", "mailers", "--limit", "5")
    assert broker.admin(*take) == ""
    broker.admin("produce", "jobs", "one", "two\x1b")
    assert broker.admin(*take, "--wait", "1", "--keep", "--limit", "1") == "one\n"
    assert sorted(broker.admin(*take, "--wait", "1", "--limit", "2").splitlines()) == ["one", r"two\x1b"]
    assert broker.admin(*take) == ""
    (queue,) = json.loads(broker.admin("queue", "list", "-o", "json"))
    assert (queue["topic"], queue["lag"], queue["in_flight"]) == ("jobs", 0, 0)
    assert lines(broker.admin("queue", "describe", str(queue["id"]))) == [["partition", "next offset"], ["0", "2"]]
    assert broker.run("admin", "queue", "delete", str(queue["id"]), stdin="n\n").returncode == 1
    broker.admin("queue", "delete", str(queue["id"]), "--yes")
    assert json.loads(broker.admin("queue", "list", "-o", "json")) == []


def test_dead_letters_are_shown_replayed_and_purged(broker: Secured) -> None:
    (broker.elsewhere / "order.json").write_text('{"type": "object", "required": ["id"]}')
    broker.admin("topic", "create", "strict")
    with penstock.connect(broker.server, user="admin", password="admin has a long password") as db:
        db.admin.schemas.register("order", (broker.elsewhere / "order.json").read_text())
    broker.admin("topic", "set", "strict", "--schema", "order", "--rejected", "dead-letter")
    said = broker.admin("produce", "strict", "{}", '{"id": 1}', "{}")
    assert "strict/0: offset 0\n" in said and "2 record(s) do not fit" in said
    assert ["strict", "2"] in lines(broker.admin("dlq", "list"))
    _, first, _ = lines(broker.admin("dlq", "list", "strict"))
    assert "id" in first[-1]
    shown = json.loads(broker.admin("dlq", "show", "strict", first[0], "-o", "json"))
    assert shown["id"] == first[0] and shown["value"] == "e30="
    assert "value\t{}\n" in broker.admin("dlq", "show", "strict", first[0])
    assert broker.run("admin", "dlq", "replay", "strict", first[0]).returncode == 1  # it still does not fit
    broker.admin("topic", "set", "strict", "--no-schema")
    assert broker.admin("dlq", "replay", "strict", first[0]) == f"{first[0]} is at strict/0: offset 1\n"
    assert broker.run("admin", "dlq", "purge", "strict", stdin="n\n").returncode == 1
    assert len(broker.admin("dlq", "replay", "strict", "--all").splitlines()) == 1
    broker.admin("dlq", "purge", "strict", "--yes")
    assert lines(broker.admin("dlq", "list", "strict"))[1:] == []
    assert broker.run("admin", "dlq", "replay", "strict").returncode == 2


def test_a_delayed_record_is_listed_and_cancelled(broker: Secured) -> None:
    broker.admin("topic", "create", "later")
    number = re.search(r"delayed record (\d+)", broker.admin("produce", "later", "x", "--delay", "1h"))
    assert number is not None
    (row,) = [row for row in lines(broker.admin("delayed", "list")) if row[1] == "later"]
    assert row[0] == number[1]
    assert broker.admin("delayed", "cancel", number[1]) == f"cancelled {number[1]}\n"
    assert "later" not in broker.admin("delayed", "list")
    assert broker.run("admin", "delayed", "cancel", number[1]).returncode == 1


def test_an_open_transaction_is_listed_and_aborted(broker: Secured) -> None:
    broker.admin("topic", "create", "debits")
    with (
        penstock.connect(broker.server, user="admin", password="admin has a long password") as db,
        pytest.raises(penstock.PenstockError),
        db.transaction() as transaction,
    ):
        transaction.produce("debits", "10")
        (found,) = json.loads(broker.admin("txn", "list", "-o", "json"))
        assert found["topics"] == "debits" and found["records"] == 1
        assert broker.run("admin", "txn", "abort", found["id"], stdin="n\n").returncode == 1
        assert broker.admin("txn", "abort", found["id"], "--yes") == f"aborted {found['id']}\n"
    assert broker.admin("consume", "debits") == ""


def test_a_cache_keeps_and_forgets(broker: Secured) -> None:
    named = ("--cache", "sessions")
    broker.admin("cache", "put", "ann", "logged in", "--ttl", "1h", *named)
    assert broker.admin("cache", "get", "ann", *named) == "logged in"
    assert ["sessions", "1", "False"] in lines(broker.admin("cache", "list"))
    assert broker.run("reader", "cache", "put", "ann", "x", *named).returncode == 1
    assert broker.admin("cache", "delete", "ann", *named) == "deleted ann\n"
    done = broker.run("admin", "cache", "get", "ann", *named)
    assert done.returncode == 1 and "no such key" in done.stderr
    assert [broker.admin("cache", "incr", "visits", "--by", "2") for _ in range(2)] == ["2\n", "4\n"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("group", "reset", "g", "private", "--to", "earliest", "--yes"),
        ("group", "delete", "g", "private", "--yes"),
        ("queue", "delete", "1", "--yes"),
        ("dlq", "purge", "private", "--yes"),
        ("delayed", "cancel", "1"),
        ("txn", "list"),
        ("txn", "abort", "1", "--yes"),
    ],
)
def test_nobody_is_told_to_log_in(broker: Secured, arguments: tuple[str, ...]) -> None:
    done = broker.run(None, *arguments)
    assert done.returncode == 1 and "--user, --key-file or --token-file" in done.stderr, done.stderr


def test_a_reader_may_look_and_not_destroy(broker: Secured) -> None:
    broker.admin("topic", "create", "kept")
    broker.admin("consume", "kept", "--group", "theirs")
    assert broker.run("reader", "group", "list").returncode == 0
    for refused in (("dlq", "purge", "kept", "--yes"), ("txn", "list"), ("txn", "abort", "1", "--yes")):
        done = broker.run("reader", *refused)
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, done
