"""SQL end to end: the process beside the broker reads the files itself, changes nothing but through the broker, and can
be stopped or killed without harm to anybody else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.flight.directories import Directory
from tests.launcher import BrokerProcess, penstock
from tests.preloaded import STARTED_WORKERS
from tests.process_stats import workers

from penstock.broker.broker import Broker
from penstock.broker.errors import AccessDenied, DuplicateKey, QueriesOff, QueryInvalid, QueryTooLarge, TableNotFound
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.queries.query import Rows, Timestamp, Value
from penstock.broker.queries.statement import Stage, Statement
from penstock.broker.security.access import ANONYMOUS, AccessPolicy, Grant, Identity, Permission
from penstock.clients.rustlog import Client
from penstock.config.layers import load
from penstock.config.settings import DOOR_NAMES, SqlSection
from penstock.log.engine import Records, partition_id
from penstock.server.server import Server
from penstock.workers.sql.worker import SqlProcess, SqlWorker, resident_bytes

T = TypeVar("T")

ACME = Scope("acme", "default")
MEMORY_BYTES = SqlSection().memory_bytes
ENDLESS = "SELECT COUNT(*) FROM range(1000000) a, range(1000000) b WHERE sin(a.range) + sin(b.range) > 3"


def sql(directory: Path, statement: str, *flags: str) -> list[dict[str, Any]]:
    """The output of `penstock sql`."""
    done = penstock("sql", statement, "--data-dir", str(directory), "--format", "json", *flags)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(directory: Path, statement: str, *flags: str) -> str:
    done = penstock("sql", statement, "--data-dir", str(directory), *flags)
    assert done.returncode == 1
    return done.stderr


# -- a broker process, and what it found when it started


pytestmark = pytest.mark.in_order  # with one broker, which takes long to start: later ones see what earlier ones add


@pytest.fixture(scope="module")
def seeded_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with 200 orders, of which the first ones are in a table already."""
    root = tmp_path_factory.mktemp("sql") / "data"
    made = Directory(root)
    made.create("orders")
    orders = [b'{"id": %d, "product": "%s"}' % (number, (b"anvil", b"bell")[number % 2]) for number in range(200)]
    for at in range(0, 200, 4):
        made.produce("orders", 0, *orders[at : at + 4])
    made.move_to_tables(str(root / "tables"))
    first = made.engine.closed_files()
    assert not first and (root / "tables").is_dir()
    made.create("late", 2)
    made.produce("late", 1, b"not JSON", b"\xff\x00")
    made.stop()
    return root


@pytest.fixture(scope="module")
def broker(seeded_dir: Path) -> Iterator[BrokerProcess]:
    settings = {"PENSTOCK_TABLES__ENABLED": "true", "PENSTOCK_SQL__SECONDS": "5"}
    with BrokerProcess(seeded_dir, **settings, **STARTED_WORKERS) as process:
        yield process.ready()


def test_a_data_directory_can_be_asked_without_a_broker(seeded_dir: Path) -> None:
    assert sql(seeded_dir, "SELECT COUNT(*) AS count, SUM(id) AS sum FROM orders") == [{"count": 200, "sum": 19900}]
    assert sql(seeded_dir, "SELECT id FROM orders WHERE id = CAST($1 AS BIGINT)", "--param", "7") == [{"id": 7}]
    assert "start one" in refused(seeded_dir, "INSERT INTO orders (id) VALUES (1)")
    assert "start one" in refused(seeded_dir, "CREATE TABLE new (id BIGINT)")
    assert "not found" in refused(seeded_dir, "SELECT * FROM missing")


@pytest.mark.usefixtures("broker")
class TestRunning:
    """In this order: what one test adds, a later one may see."""

    def test_a_select_spans_table_and_journal(self, seeded_dir: Path) -> None:
        rows = sql(
            seeded_dir, "SELECT product, COUNT(*) AS n, MIN(id) AS a, MAX(id) AS b FROM orders GROUP BY 1 ORDER BY 1"
        )
        assert rows == [
            {"product": "anvil", "n": 100, "a": 0, "b": 198},
            {"product": "bell", "n": 100, "a": 1, "b": 199},
        ]
        assert sql(seeded_dir, 'SELECT "offset" FROM orders WHERE id BETWEEN 3 AND 5 ORDER BY 1') == [
            {"offset": number} for number in (3, 4, 5)
        ]
        assert sql(seeded_dir, 'SELECT "partition", "offset", data FROM late ORDER BY 2') == [
            {"partition": 1, "offset": 0, "data": "not JSON"},
            {"partition": 1, "offset": 1, "data": "/wA="},
        ]

    def test_at_a_position_it_holds_what_had_been_appended_by_then(self, seeded_dir: Path) -> None:
        for number in (0, 4, 56, 196, 200):  # four in each commit group; position 0 is the event that made the topic
            found = sql(seeded_dir, "SELECT COUNT(*) AS n FROM orders", "--at", str(number + 1))
            assert found == [{"n": number}]
        assert "ahead" in refused(seeded_dir, "SELECT 1 FROM orders", "--at", "1000000")

    def test_an_insert_tells_the_position_at_which_it_is_seen(self, seeded_dir: Path) -> None:
        created = sql(seeded_dir, "CREATE TABLE people (id BIGINT PRIMARY KEY, name VARCHAR)")
        assert list(created[0]) == ["rows_affected", "log_offset"]
        before = created[0]["log_offset"]
        (inserted,) = sql(seeded_dir, "INSERT INTO people VALUES (1, 'Ada'), (2, 'Bo')")
        assert inserted["rows_affected"] == 2 and inserted["log_offset"] == before + 2
        (second,) = sql(seeded_dir, "INSERT INTO people VALUES (3, NULL)")
        for position, count in ((before, 0), (inserted["log_offset"], 2), (second["log_offset"], 3)):
            assert sql(seeded_dir, "SELECT COUNT(*) AS n FROM people", "--at", str(position)) == [{"n": count}]
        assert "people" in refused(seeded_dir, "SELECT * FROM people", "--at", str(before - 1))
        assert "id = 2 already" in refused(seeded_dir, "INSERT INTO people VALUES (2, 'again')")
        assert sql(seeded_dir, "SELECT * FROM people ORDER BY id")[1:] == [
            {"id": 2, "name": "Bo"},
            {"id": 3, "name": None},
        ]

    def test_tenants_do_not_see_each_other(self, seeded_dir: Path) -> None:
        sql(seeded_dir, "CREATE TABLE secret (id BIGINT)", "--tenant", "acme")
        sql(seeded_dir, "INSERT INTO secret VALUES (7)", "--tenant", "acme")
        assert sql(seeded_dir, "SELECT id FROM secret", "--tenant", "acme") == [{"id": 7}]
        assert "not found" in refused(seeded_dir, "SELECT * FROM secret")
        assert "not found" in refused(seeded_dir, "SELECT * FROM orders", "--tenant", "acme")
        assert [row["name"] for row in sql(seeded_dir, "SHOW TABLES", "--tenant", "acme")] == ["secret"]
        names = [row["name"] for row in sql(seeded_dir, "SHOW TABLES")]
        assert {"late", "orders", "people"} <= set(names) and "secret" not in names

    def test_statements_about_large_records_keep_their_process(self, seeded_dir: Path, broker: BrokerProcess) -> None:
        """Their memory is given back: starting another process takes longer than they do."""
        with Client(*broker.endpoint("rustlog")) as client:
            client.create_topic("large", 1)
            for _ in range(20):
                client.produce("large", 0, [os.urandom(120_000).hex().encode()])
        pids = set[int]()
        for _ in range(8):
            assert len(sql(seeded_dir, 'SELECT "offset", data FROM large ORDER BY 1')) == 20
            pids |= set(workers(broker.process.pid, "penstock.workers.sql.main"))
        assert len(pids) <= 2  # one of them may have been near its limit before

    def test_a_statement_that_takes_too_long_is_ended_and_others_are_served(
        self, seeded_dir: Path, broker: BrokerProcess
    ) -> None:
        told: list[str] = []
        asking = threading.Thread(target=lambda: told.append(_refused_by_process(seeded_dir, ENDLESS)))
        asking.start()
        served = 0
        with Client(*broker.endpoint("rustlog")) as client:
            while asking.is_alive():
                client.produce("orders", 0, [b'{"id": 1000}'])
                served += 1
                time.sleep(0.1)
        assert served > 10 and "5 s" in told[0]
        assert sql(seeded_dir, "SELECT COUNT(*) AS n FROM orders WHERE id = 1000") == [{"n": served}]

    def test_the_command_prints_tables_and_csv(self, seeded_dir: Path) -> None:
        def printed(form: str) -> str:
            query = (
                'SELECT id, name, id > 1 AS late, "timestamp" IS NULL AS never FROM people WHERE id <> 2 ORDER BY id'
            )
            done = penstock("sql", query, "--data-dir", str(seeded_dir), "--format", form)
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert printed("csv") == "id,name,late,never\n1,Ada,false,false\n3,,true,false\n"
        assert printed("table").splitlines() == [
            "id  name  late   never",
            "--  ----  -----  -----",
            "1   Ada   false  false",
            "3   NULL  true   false",
        ]

    def test_a_restart_keeps_declared_tables(self, seeded_dir: Path, broker: BrokerProcess) -> None:
        rows = sql(seeded_dir, "SELECT * FROM people ORDER BY id")
        columns = sql(seeded_dir, "DESCRIBE people")
        broker.signal(signal.SIGTERM)
        assert broker.finish()[0] == 0
        with BrokerProcess(seeded_dir).ready():
            assert sql(seeded_dir, "SELECT * FROM people ORDER BY id") == rows
            assert sql(seeded_dir, "DESCRIBE people") == columns
            assert [column["name"] for column in columns] == ["id", "name"]


def _refused_by_process(directory: Path, statement: str) -> str:
    command = (sys.executable, "-m", "penstock.cli.main", "sql", statement, "--data-dir", str(directory))
    return subprocess.run(command, capture_output=True, check=False, timeout=60, text=True).stderr


# -- a broker in this process, whose statements can be watched and cancelled


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Server]:
    flags = {f"listen.{name}": "off" for name in DOOR_NAMES}
    # At this level the files are behind the broker: what is read must be waited for.
    flags |= {"data_dir": str(directory), "tables.enabled": "false", "log.durability": "memory", "sql.threads": "3"}
    flags["sql.seconds"] = "10m"  # no statement ends by itself, however slow the machine is
    server = Server(load(environment={}, flags=flags))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class SqlFixture:
    """A server on an event loop of its own, for tests that take turns."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._context = serving(directory)
        self.server: Server = self.play(self._context.__aenter__())

    def play(self, scene: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(scene, self._loop).result(90)

    def close(self) -> None:
        self.play(self._context.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def broker(self) -> Broker:
        assert self.server.broker is not None
        return self.server.broker

    @property
    def worker(self) -> SqlWorker:
        assert self.server.workers is not None and self.server.workers.sql is not None
        return self.server.workers.sql

    def process_of(self, run: Statement) -> SqlProcess:
        """The process that carries a statement out."""
        assert isinstance(run.worker, SqlProcess)
        return run.worker

    def pid_of(self, run: Statement) -> int:
        process = self.process_of(run).process.process
        assert process is not None
        return process.pid

    async def ask(self, statement: str, *params: Value, scope: Scope = DEFAULT_SCOPE, **more: Any) -> Rows:
        identity = more.pop("identity", ANONYMOUS)
        run = self.broker.queries.run(identity, scope, statement, params, **more)
        done = asyncio.Event()
        run.start(done.set)
        await done.wait()
        return run.finish()

    async def running(self, statement: str, scope: Scope = DEFAULT_SCOPE) -> Statement:
        """A statement that a process is at."""
        run = self.broker.queries.run(ANONYMOUS, scope, statement)
        run.start(lambda: None)
        while run.stage is not Stage.RUNNING:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        return run

    async def over(self, run: Statement) -> Rows:
        while run.stage is not Stage.OVER:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        return run.finish()


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlFixture]:
    made = SqlFixture(tmp_path_factory.mktemp("fixture"))
    yield made
    made.close()


def test_parameters_values_and_errors_make_the_whole_way(fixture: SqlFixture) -> None:
    async def scene() -> None:
        moment = Timestamp(1_700_000_000_000_000_001)
        rows = await fixture.ask("SELECT $1 AS a, $2 AS b, $3 AS c, $4 AS d, $5 AS e", 7, "x", True, None, moment)
        assert rows == Rows(["a", "b", "c", "d", "e"], [[7, "x", True, None, moment]])
        with pytest.raises(TableNotFound) as raised:
            await fixture.ask("SELECT * FROM missing")
        assert raised.value.table == "missing"
        with pytest.raises(QueryInvalid):
            await fixture.ask("SELEKT 1")
        many = await fixture.ask("SELECT range AS n, repeat('x', 100) AS x FROM range(20000)")  # several pages
        assert [row[0] for row in many.rows] == list(range(20000)) and many.columns == ["n", "x"]
        with pytest.raises(QueryTooLarge):
            await fixture.ask("SELECT repeat('x', 10000) FROM range(2000)")

    fixture.play(scene())


def test_what_is_only_in_memory_yet_is_waited_for(fixture: SqlFixture) -> None:
    async def scene() -> None:
        await fixture.ask("CREATE TABLE numbers (id BIGINT)")
        for number in range(5):
            await fixture.ask("INSERT INTO numbers VALUES ($1)", number)
            assert (await fixture.ask("SELECT COUNT(id) AS n FROM numbers")).rows == [[number + 1]]

    fixture.play(scene())


def test_a_statement_has_the_rights_of_its_sender(fixture: SqlFixture) -> None:
    reader = Identity("reader", tenant="acme")

    async def scene() -> None:
        await fixture.ask("CREATE TABLE t (id BIGINT)", scope=ACME)
        await fixture.ask("INSERT INTO t VALUES (5)", scope=ACME)
        reading = AccessPolicy(enforced=True, grants=[Grant("reader", frozenset({Permission.READ}))])
        fixture.broker.access.apply(reading)
        assert await fixture.ask("SELECT id FROM t", scope=ACME, identity=reader) == Rows(["id"], [[5]])
        for statement in ("INSERT INTO t VALUES (6)", "DROP TABLE t", "CREATE TABLE new (id BIGINT)"):
            with pytest.raises(AccessDenied):
                await fixture.ask(statement, scope=ACME, identity=reader)
        with pytest.raises(AccessDenied):
            fixture.broker.queries.run(reader, DEFAULT_SCOPE, "SELECT 1")
        fixture.broker.access.apply(AccessPolicy())
        assert (await fixture.ask("SELECT COUNT(*) AS n FROM t", scope=ACME)).rows == [[1]]

    fixture.play(scene())


def test_of_two_who_insert_the_same_key_at_once_one_is_refused(fixture: SqlFixture) -> None:
    async def scene() -> None:
        await fixture.ask("CREATE TABLE pairs (id BIGINT PRIMARY KEY, who VARCHAR)")
        tasks = [fixture.ask("INSERT INTO pairs VALUES ($1, $2)", n // 2, f"w{n}") for n in range(8)]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(one, DuplicateKey) for one in outcomes) == 4
        assert sum(isinstance(one, Rows) for one in outcomes) == 4
        found = await fixture.ask("SELECT COUNT(*) AS n, COUNT(DISTINCT id) AS d FROM pairs")
        assert found.rows == [[4, 4]]

    fixture.play(scene())


def test_streams_are_seen_as_of_one_position_while_others_append(fixture: SqlFixture) -> None:
    """Each append has one record for either stream, so a statement that counts both finds the same number."""

    async def scene() -> None:
        topics = [fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, name, 1)[0] for name in ("left", "right")]
        writes = [Records(partition_id(topic.id, 0), [b"x"]) for topic in topics]
        over = False

        async def append() -> None:
            while not over:
                fixture.broker._engine.append(writes)
                await asyncio.sleep(0.001)

        appending = asyncio.create_task(append())
        count = 'SELECT (SELECT COUNT(*) FROM "left") AS a, (SELECT COUNT(data) FROM "right") AS b'
        seen = [(await fixture.ask(count)).rows[0] for _ in range(5)]
        over = True
        await appending
        assert all(a == b for a, b in seen) and seen[0] < seen[-1]

    fixture.play(scene())


def test_a_cancelled_statement_is_interrupted(fixture: SqlFixture) -> None:
    async def scene() -> None:
        runs = [await fixture.running(ENDLESS) for _ in range(2)]  # as many as one tenant may have
        processes = [fixture.process_of(run) for run in runs]
        starts = [one.process.starts for one in processes]
        for run in runs:
            run.cancel()
        assert await fixture.ask("SELECT 1 AS one") == Rows(["one"], [[1]])
        while any(one.busy for one in processes):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        assert [one.process.starts for one in processes] == starts

    fixture.play(scene())


def test_killed_in_the_midst_it_tells_who_waited_and_the_next_statement_works(fixture: SqlFixture) -> None:
    async def scene() -> None:
        run = await fixture.running(ENDLESS)
        os.kill(fixture.pid_of(run), signal.SIGKILL)
        while not (run.tries and run.stage is Stage.RUNNING):  # noqa: ASYNC110 - it is carried out once more
            await asyncio.sleep(0.01)
        os.kill(fixture.pid_of(run), signal.SIGKILL)
        with pytest.raises(QueriesOff, match="ended unexpectedly"):
            await fixture.over(run)
        assert (await fixture.ask("SELECT COUNT(*) AS n FROM numbers")).rows == [[5]]

    fixture.play(scene())


def test_a_process_that_does_not_stop_a_statement_is_killed_and_the_others_are_carried_out(fixture: SqlFixture) -> None:
    async def scene() -> None:
        guilty = await fixture.running(ENDLESS)
        process, starts = fixture.process_of(guilty), fixture.process_of(guilty).process.starts
        os.kill(fixture.pid_of(guilty), signal.SIGSTOP)
        innocent = await fixture.running(ENDLESS, ACME)
        guilty.since -= 3600 * 1_000_000
        with pytest.raises(QueryTooLarge, match="by force"):
            await fixture.over(guilty)
        assert innocent.stage is Stage.RUNNING
        innocent.cancel()
        assert (await fixture.ask("SELECT COUNT(*) AS n FROM numbers")).rows == [[5]]
        while process.process.starts == starts:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)

    fixture.play(scene())


def test_a_process_that_takes_too_much_memory_is_killed(fixture: SqlFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        run, other = await fixture.running(ENDLESS), await fixture.running(ENDLESS, ACME)
        monkeypatch.setattr(fixture.process_of(run), "_memory_limit", 1)
        with pytest.raises(QueryTooLarge, match=r"by force.*memory"):
            await fixture.over(run)
        monkeypatch.undo()
        assert other.stage is Stage.RUNNING
        other.cancel()
        assert await fixture.ask("SELECT 1 AS one") == Rows(["one"], [[1]])

    fixture.play(scene())


@pytest.mark.parametrize("alone", ["share", "last process"])
def test_another_tenant_is_served_beside_more_endless_statements_than_there_are_processes(
    fixture: SqlFixture, monkeypatch: pytest.MonkeyPatch, alone: str
) -> None:
    """By either of two rules alone: a tenant has no more than its share, and the last process that is free is for
    tenants that have none."""
    queries = fixture.broker.queries
    if alone == "share":
        any_process = queries.next
        monkeypatch.setattr(queries, "next", lambda worker, *, last: any_process(worker))  # noqa: ARG005
    else:
        monkeypatch.setattr(queries, "policy", queries.policy._replace(tenant_share=1.0))
    greedy = Scope("greedy", "default")

    async def scene() -> None:
        first = await fixture.running(ENDLESS, greedy)
        runs = [fixture.broker.queries.run(ANONYMOUS, greedy, ENDLESS) for _ in range(5)]
        for run in runs:
            run.start(lambda: None)
        for _ in range(5):
            assert await fixture.ask("SELECT 1 AS one", scope=ACME) == Rows(["one"], [[1]])
        stages = [run.stage for run in (first, *runs)]
        assert stages[0] is Stage.RUNNING and stages.count(Stage.RUNNING) <= 2
        for run in (first, *runs):
            run.cancel()

    fixture.play(scene())


# Much out of little, which DuckDB does not count as memory.
BOMBS = {
    "replace": "SELECT length(replace(replace(repeat('x', 1000), 'x', repeat('y', 1000)), 'y', repeat('z', 1000)))",
    "list_transform": "SELECT len(list_transform(range(1000000), x -> repeat('z', 5000)))",
    "list": "SELECT list(list_transform(range(1000), x -> repeat('z', 1000))) FROM range(100000)",
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_statement_that_makes_much_of_little_ends_at_the_limit_of_its_process(fixture: SqlFixture, what: str) -> None:
    """The system does not let it have more, and nobody else notices: neither who is there meanwhile nor who comes to
    the same process next."""

    async def scene() -> None:
        neighbour = await fixture.running(ENDLESS, ACME)
        idle = resident_bytes(fixture.pid_of(neighbour))
        bomb = await fixture.running(BOMBS[what])
        pid = fixture.pid_of(bomb)
        assert data_limit(pid).isdigit(), "its memory has no limit of the system's"
        with pytest.raises(QueryTooLarge, match=r"memory|took longer"):
            await fixture.over(bomb)
        with contextlib.suppress(FileNotFoundError):  # unless it was ended with the statement
            assert peak_bytes(pid) < 2 * idle + (512 + 256 << 20)
        assert neighbour.stage is Stage.RUNNING, neighbour.error
        neighbour.cancel()
        await has_room(fixture.process_of(bomb))
        assert await fixture.ask("SELECT 1 AS one") == Rows(["one"], [[1]])

    fixture.play(scene())


async def has_room(process: SqlProcess) -> None:
    """Wait until there is, in this or in one that has taken its place, the memory that a statement may take."""
    end = time.monotonic() + 60
    while not (process.free and process.process.process and room(process.process.process.pid) >= MEMORY_BYTES):
        assert time.monotonic() < end, "what a statement has left behind, the next one lacks"
        await asyncio.sleep(0.05)


def room(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(data_limit(pid)) - (int(status.partition("VmData:")[2].split()[0]) << 10)


def data_limit(pid: int) -> str:
    """The limit that the system has for a process's memory."""
    (limit,) = re.findall(r"^Max data size +(\S+)", Path(f"/proc/{pid}/limits").read_text(), re.MULTILINE)
    return str(limit)


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def test_a_broker_that_stops_tells_who_waits(fixture: SqlFixture) -> None:
    async def scene() -> Statement:
        return await fixture.running(ENDLESS)

    run = fixture.play(scene())
    fixture.play(fixture.server.stop())
    with pytest.raises(QueriesOff, match="with the broker"):
        run.finish()
