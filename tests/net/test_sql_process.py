"""SQL end to end: the process beside the broker reads the files itself, changes nothing but through the broker, and can
be stopped or killed without harm to anybody else."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.process import BrokerProcess, penstock
from tests.flight.directories import Directory

from penstock.config_layers import load
from penstock.core.access import ANONYMOUS, Access, Grant, Identity, Permission
from penstock.core.broker import Broker
from penstock.core.errors import AccessDenied, QueriesOff, QueryError, QueryTooLarge, TableNotFound
from penstock.core.names import DEFAULT_SCOPE, Scope
from penstock.core.query import QueryRun, Rows, Timestamp, Value
from penstock.core.statement import Statement
from penstock.net.server import Server

ACME = Scope("acme", "default")
ENDLESS = "SELECT COUNT(*) FROM range(100000000) a, range(100000000) b WHERE a.range + b.range = 7"


def sql(directory: Path, statement: str, *flags: str) -> list[dict[str, Any]]:
    """What `penstock sql` prints."""
    done = penstock("sql", statement, "--data-dir", str(directory), "--format", "json", *flags)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(directory: Path, statement: str, *flags: str) -> str:
    done = penstock("sql", statement, "--data-dir", str(directory), *flags)
    assert done.returncode == 1
    return done.stderr


# -- a broker process, and what it found when it started


@pytest.fixture(scope="module")
def estate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with 200 orders, of which the first ones are in a table already."""
    root = tmp_path_factory.mktemp("sql") / "data"
    made = Directory(root)
    made.create("orders")
    for number in range(200):
        made.produce("orders", 0, b'{"id": %d, "product": "%s"}' % (number, (b"anvil", b"bell")[number % 2]))
    made.move_to_tables(str(root / "tables"))
    first = made.engine.closed_files()
    assert not first and (root / "tables").is_dir()
    made.create("late", 2)
    made.produce("late", 1, b"not JSON", b"\xff\x00")
    made.stop()
    return root


@pytest.fixture(scope="module")
def broker(estate: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(estate, PENSTOCK_TABLES__ENABLED="true", PENSTOCK_SQL__SECONDS="5") as process:
        yield process.ready()


def test_a_data_directory_can_be_asked_without_a_broker(estate: Path) -> None:
    assert sql(estate, "SELECT COUNT(*) AS count, SUM(id) AS sum FROM orders") == [{"count": 200, "sum": 19900}]
    assert sql(estate, "SELECT id FROM orders WHERE id = CAST($1 AS BIGINT)", "--param", "7") == [{"id": 7}]
    assert "start one" in refused(estate, "INSERT INTO orders (id) VALUES (1)")
    assert "start one" in refused(estate, "CREATE TABLE new (id BIGINT)")
    assert "not found" in refused(estate, "SELECT * FROM missing")


@pytest.mark.usefixtures("broker")
class TestRunning:
    """In this order: what one test adds, a later one may see."""

    def test_a_select_spans_table_and_journal(self, estate: Path) -> None:
        rows = sql(
            estate, "SELECT product, COUNT(*) AS n, MIN(id) AS a, MAX(id) AS b FROM orders GROUP BY 1 ORDER BY 1"
        )
        assert rows == [
            {"product": "anvil", "n": 100, "a": 0, "b": 198},
            {"product": "bell", "n": 100, "a": 1, "b": 199},
        ]
        assert sql(estate, 'SELECT "offset" FROM orders WHERE id BETWEEN 3 AND 5 ORDER BY 1') == [
            {"offset": number} for number in (3, 4, 5)
        ]
        assert sql(estate, 'SELECT "partition", "offset", data FROM late ORDER BY 2') == [
            {"partition": 1, "offset": 0, "data": "not JSON"},
            {"partition": 1, "offset": 1, "data": "/wA="},
        ]

    def test_at_a_position_it_holds_what_had_been_appended_by_then(self, estate: Path) -> None:
        for number in (0, 1, 57, 199, 200):  # position 0 is the event that made the topic
            found = sql(estate, "SELECT COUNT(*) AS n FROM orders", "--at", str(number + 1))
            assert found == [{"n": number}]
        assert "ahead" in refused(estate, "SELECT 1 FROM orders", "--at", "1000000")

    def test_an_insert_tells_the_position_at_which_it_is_seen(self, estate: Path) -> None:
        created = sql(estate, "CREATE TABLE people (id BIGINT PRIMARY KEY, name VARCHAR)")
        assert list(created[0]) == ["rows_affected", "log_offset"]
        before = created[0]["log_offset"]
        (inserted,) = sql(estate, "INSERT INTO people VALUES (1, 'Ada'), (2, 'Bo')")
        assert inserted["rows_affected"] == 2 and inserted["log_offset"] == before + 2
        (second,) = sql(estate, "INSERT INTO people VALUES (3, NULL)")
        for position, count in ((before, 0), (inserted["log_offset"], 2), (second["log_offset"], 3)):
            assert sql(estate, "SELECT COUNT(*) AS n FROM people", "--at", str(position)) == [{"n": count}]
        assert "people" in refused(estate, "SELECT * FROM people", "--at", str(before - 1))
        assert "id = 2 already" in refused(estate, "INSERT INTO people VALUES (2, 'again')")
        assert sql(estate, "SELECT * FROM people ORDER BY id")[1:] == [{"id": 2, "name": "Bo"}, {"id": 3, "name": None}]

    def test_tenants_do_not_see_each_other(self, estate: Path) -> None:
        sql(estate, "CREATE TABLE secret (id BIGINT)", "--tenant", "acme")
        sql(estate, "INSERT INTO secret VALUES (7)", "--tenant", "acme")
        assert sql(estate, "SELECT id FROM secret", "--tenant", "acme") == [{"id": 7}]
        assert "not found" in refused(estate, "SELECT * FROM secret")
        assert "not found" in refused(estate, "SELECT * FROM orders", "--tenant", "acme")
        assert [row["name"] for row in sql(estate, "SHOW TABLES", "--tenant", "acme")] == ["secret"]
        names = [row["name"] for row in sql(estate, "SHOW TABLES")]
        assert {"late", "orders", "people"} <= set(names) and "secret" not in names

    def test_a_statement_that_takes_too_long_is_ended_and_others_are_served(
        self, estate: Path, broker: BrokerProcess
    ) -> None:
        told: list[str] = []
        asking = threading.Thread(target=lambda: told.append(_refused_by_process(estate, ENDLESS)))
        asking.start()
        host, port = broker.endpoint("rustlog")
        served = 0
        while asking.is_alive():
            done = _run("produce", "orders", '{"id": 1000}', "--server", f"{host}:{port}")
            assert done == 0
            served += 1
            time.sleep(0.1)
        assert served >= 2 and "5 s" in told[0]
        assert sql(estate, "SELECT COUNT(*) AS n FROM orders WHERE id = 1000") == [{"n": served}]

    def test_the_command_prints_tables_and_csv(self, estate: Path) -> None:
        def printed(form: str) -> str:
            query = (
                'SELECT id, name, id > 1 AS late, "timestamp" IS NULL AS never FROM people WHERE id <> 2 ORDER BY id'
            )
            return penstock("sql", query, "--data-dir", str(estate), "--format", form).stdout

        assert printed("csv") == "id,name,late,never\n1,Ada,false,false\n3,,true,false\n"
        assert printed("table").splitlines() == [
            "id  name  late   never",
            "--  ----  -----  -----",
            "1   Ada   false  false",
            "3   NULL  true   false",
        ]

    def test_a_restart_keeps_declared_tables(self, estate: Path, broker: BrokerProcess) -> None:
        rows = sql(estate, "SELECT * FROM people ORDER BY id")
        columns = sql(estate, "DESCRIBE people")
        broker.signal(signal.SIGTERM)
        assert broker.finish()[0] == 0
        with BrokerProcess(estate).ready():
            assert sql(estate, "SELECT * FROM people ORDER BY id") == rows
            assert sql(estate, "DESCRIBE people") == columns
            assert [column["name"] for column in columns] == ["id", "name"]


def _run(*arguments: str) -> int:
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *arguments], capture_output=True, check=False, timeout=30
    ).returncode


def _refused_by_process(directory: Path, statement: str) -> str:
    command = (sys.executable, "-m", "penstock.cli.main", "sql", statement, "--data-dir", str(directory))
    return subprocess.run(command, capture_output=True, check=False, timeout=60, text=True).stderr


# -- a broker in this process, whose statements can be watched and cancelled


@asynccontextmanager
async def serving(directory: Path, **flags: str) -> Any:
    closed = dict.fromkeys(("rustlog", "blipmq", "flymq", "felix", "kimberlite", "flight"), "off")
    settings = {f"listen.{name}": address for name, address in closed.items()}
    settings |= {"data_dir": str(directory), "tables.enabled": "false", "log.durability": "written", **flags}
    server = Server(load(environment={}, flags=settings))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def played(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 60))


async def rows_of(run: QueryRun) -> Rows:
    done = asyncio.Event()
    run.start(done.set)
    await done.wait()
    return run.finish()


async def ask(broker: Broker, statement: str, *params: Value, scope: Scope = DEFAULT_SCOPE, **more: Any) -> Rows:
    identity = more.pop("identity", ANONYMOUS)
    return await rows_of(broker.queries.run(identity, scope, statement, params, **more))


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


def running(broker: Broker) -> list[Statement]:
    return broker.queries.desk.running()


def test_killed_in_the_midst_it_tells_who_waited_and_the_next_statement_works(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as server:
            broker = server.broker
            await ask(broker, "CREATE TABLE t (id BIGINT)")
            waiting = asyncio.create_task(ask(broker, ENDLESS))
            await until(lambda: running(broker))
            child = server._sql.child
            os.kill(child.process.pid, signal.SIGKILL)
            with pytest.raises(QueriesOff, match="ended unexpectedly"):
                await waiting
            assert await ask(broker, "SELECT COUNT(*) AS n FROM t") == Rows(["n"], [[0]])
            assert child.starts == 2 and not running(broker)

    played(scene)


def test_a_cancelled_statement_is_interrupted_and_its_place_is_free_again(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path, **{"sql.threads": "1"}) as server:
            broker = server.broker
            run = broker.queries.run(ANONYMOUS, DEFAULT_SCOPE, ENDLESS)
            run.start(lambda: None)
            await until(lambda: running(broker))
            await asyncio.sleep(0.3)
            run.cancel()
            assert await ask(broker, "SELECT 1 AS one") == Rows(["one"], [[1]])
            assert server._sql.child.starts == 1

    played(scene)


def test_a_process_that_does_not_stop_a_statement_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.core.queries.GRACE", 200_000)

    async def scene() -> None:
        async with serving(tmp_path, **{"sql.seconds": "1"}) as server:
            broker = server.broker
            await ask(broker, "SELECT 1")
            child = server._sql.child
            stuck = asyncio.create_task(ask(broker, ENDLESS))
            await until(lambda: running(broker))
            os.kill(child.process.pid, signal.SIGSTOP)
            with pytest.raises(QueryTooLarge, match="1 s"):
                await stuck
            assert await ask(broker, "SELECT 1 AS one") == Rows(["one"], [[1]])
            assert child.starts == 2

    played(scene)


def test_a_process_that_takes_too_much_memory_is_killed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as server:
            broker = server.broker
            await ask(broker, "SELECT 1")
            server._sql._bound = 1
            with pytest.raises(QueriesOff, match="memory"):
                await ask(broker, ENDLESS)
            server._sql._bound = 1 << 40
            assert await ask(broker, "SELECT 1 AS one") == Rows(["one"], [[1]])

    played(scene)


def test_identities_parameters_and_errors_make_the_whole_way(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as server:
            broker: Broker = server.broker
            moment = Timestamp(1_700_000_000_000_000_001)
            rows = await ask(broker, "SELECT $1 AS a, $2 AS b, $3 AS c, $4 AS d, $5 AS e", 7, "x", True, None, moment)
            assert rows == Rows(["a", "b", "c", "d", "e"], [[7, "x", True, None, moment]])
            with pytest.raises(TableNotFound) as raised:
                await ask(broker, "SELECT * FROM missing")
            assert raised.value.table == "missing"
            await ask(broker, "CREATE TABLE t (id BIGINT)", scope=ACME)
            await ask(broker, "INSERT INTO t VALUES (5)", scope=ACME)
            broker.access = broker.queries._broker.access = _granted("reader", Permission.READ)
            reader = Identity("reader", tenant="acme")
            assert await ask(broker, "SELECT id FROM t", scope=ACME, identity=reader) == Rows(["id"], [[5]])
            with pytest.raises(AccessDenied, match="may not write"):
                await ask(broker, "INSERT INTO t VALUES (6)", scope=ACME, identity=reader)
            with pytest.raises(AccessDenied):
                await ask(broker, "DROP TABLE t", scope=ACME, identity=reader)
            with pytest.raises(AccessDenied):
                broker.queries.run(reader, DEFAULT_SCOPE, "SELECT 1")

    played(scene)


def _granted(principal: str, *permissions: Permission) -> Access:
    return Access(enforced=True, grants=[Grant(principal, frozenset(permissions))])


def test_two_who_insert_the_same_key_at_once_are_told_apart(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as server:
            broker = server.broker
            await ask(broker, "CREATE TABLE t (id BIGINT PRIMARY KEY, who VARCHAR)")
            tasks = [ask(broker, "INSERT INTO t VALUES ($1, $2)", n // 2, f"w{n}") for n in range(8)]
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(one, QueryError) for one in outcomes) == 4
            found = await ask(broker, "SELECT COUNT(*) AS n, COUNT(DISTINCT id) AS d FROM t")
            assert found.rows == [[4, 4]]

    played(scene)


def test_what_is_only_in_memory_yet_is_waited_for(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path, **{"log.durability": "memory"}) as server:
            broker = server.broker
            await ask(broker, "CREATE TABLE t (id BIGINT)")
            for number in range(5):
                await ask(broker, "INSERT INTO t VALUES ($1)", number)
                assert (await ask(broker, "SELECT COUNT(id) AS n FROM t")).rows == [[number + 1]]

    played(scene)


def test_a_broker_that_stops_tells_who_waits(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as server:
            broker = server.broker
            task = asyncio.create_task(ask(broker, ENDLESS))
            await until(lambda: running(broker))
        with pytest.raises(QueriesOff, match="with the broker"):
            await task

    played(scene)
