"""`penstock conformance --against`: the server is afterwards as it was before, whatever became of the conversations."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.launcher import WITHOUT_SETTINGS, BrokerProcess, penstock

from penstock.broker.broker import Broker
from penstock.broker.runtime.clock import wall_clock
from penstock.broker.state.state import _Snapshot as SNAPSHOT
from penstock.broker.state.state import encode_snapshot
from penstock.clients.blipmq import Client as BlipMq
from penstock.clients.felix import FelixClient
from penstock.clients.flymq import Client as FlyMq
from penstock.clients.kimberlite import KimberliteClient
from penstock.clients.rustlog import Client as RustLog
from penstock.config.broker import administration_settings, log_settings
from penstock.config.settings import Settings
from penstock.conformance import vectors
from penstock.log.committer import InlineCommitter
from penstock.log.engine import Durability
from penstock.log.file_engine import FileEngine
from penstock.log.files import OsFiles

VECTORS = Path(__file__).parents[2] / "conformance" / "vectors"
SETTINGS = {"PENSTOCK_CACHE__JOURNALLED": "*/*/*"}  # what is in caches is state, too
OPEN = ("--listen", "felix=127.0.0.1:0")
# Numbers that are never used again.
ONLY_GROWS = {"next_topic_id", "next_queue_id", "next_key_id", "next_delayed_id", "last_schema_id"}


def state_of(data_dir: Path) -> dict[str, Any]:
    """Everything that the broker knows besides records, of one that does not run. Numbers that are used up do not come
    back, and a commit is remembered, so that a client that asks again finds its own: both by design."""
    settings = Settings(data_dir=str(data_dir))
    log = log_settings(settings, Durability.SYNCED)
    engine = FileEngine(OsFiles(str(data_dir)), log, committer=InlineCommitter(), clock=wall_clock)
    try:
        state = Broker(engine, administration_settings(settings)).state_log.state
    finally:
        engine.close()
    for queue in state.queues.values():
        queue.used = 0  # when it was last looked at: by a start, too
    for subjects in state.schemas.values():
        for name in [name for name, subject in subjects.items() if not subject.versions]:
            del subjects[name]  # deleted: only the number of its last version is left
    known = dict(zip(SNAPSHOT.__struct_fields__, msgspec.msgpack.decode(encode_snapshot(state)), strict=True))
    return {name: value for name, value in known.items() if name not in ONLY_GROWS | {"transactions"}}


def fill(broker: BrokerProcess) -> None:
    """Something of every kind, which has to be there afterwards."""
    with RustLog(*broker.endpoint("rustlog")) as rustlog:
        rustlog.create_topic("mine", 2)
        rustlog.produce("mine", 0, [b"a", b"b"])
        rustlog.commit_offset("readers", "mine", 0, 1)
    with BlipMq(*broker.endpoint("blipmq"), key="any") as blipmq:
        blipmq.subscribe("mine")
    with FlyMq(*broker.endpoint("flymq")) as flymq:
        flymq.register_schema("mine", "json", b'{"type":"object"}')
        flymq.create_user("alice", "her password")
    with KimberliteClient(broker.address("kimberlite"), tenant=42) as kimberlite:
        kimberlite.create_stream("mine")
    with FelixClient(broker.address("felix"), insecure=True) as felix:
        felix.cache_put("mine", b"value")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conformance-cleanup")


@pytest.fixture(scope="module")
def before(directory: Path) -> dict[str, Any]:
    with BrokerProcess(directory, *OPEN, **SETTINGS).ready() as broker:
        fill(broker)
        broker.signal(signal.SIGTERM)
        broker.finish()
    return state_of(directory)


@pytest.fixture
def broker(directory: Path, before: dict[str, Any]) -> Iterator[BrokerProcess]:
    """At the end of each test the broker stops, and its state is what it was."""
    with BrokerProcess(directory, *OPEN, **SETTINGS).ready() as running:
        yield running
        running.signal(signal.SIGTERM)
        running.finish()
    after = state_of(directory)
    assert {name: after[name] for name in before if after[name] != before[name]} == {}


def command(broker: BrokerProcess, protocol: str) -> list[str]:
    where = ["conformance", "--against", broker.address(protocol), "--protocol", protocol, "--timeout", "10"]
    return [*where, "--remove-at", broker.address("flymq")] if protocol == "felix" else where


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_nothing_is_left_behind(broker: BrokerProcess) -> None:
    """All five protocols, one after the other; each has made something, or the comparison would show nothing."""
    for protocol in vectors.PROTOCOLS:
        done = penstock(*command(broker, protocol))
        assert done.returncode == 0 and done.stdout.endswith("nothing was left behind\n"), done.stdout


def test_two_runs_do_not_meet(broker: BrokerProcess) -> None:
    runs = [start(VECTORS, command(broker, protocol)) for protocol in ("flymq", "flymq", "rustlog")]
    assert [run.communicate(timeout=60)[0].endswith("nothing was left behind\n") for run in runs] == [True] * 3
    assert [run.returncode for run in runs] == [0] * 3


def test_runs_that_are_interrupted_leave_nothing(broker: BrokerProcess, tmp_path: Path) -> None:
    for protocol in vectors.PROTOCOLS:
        run = start(altered(tmp_path, protocol, "wait", wait_ms=60_000), command(broker, protocol))
        until(lambda p=protocol: made_by_a_run(broker, p))  # type: ignore[misc]
        run.send_signal(signal.SIGTERM if protocol == "blipmq" else signal.SIGINT)
        told = run.communicate(timeout=30)[0]
        assert run.returncode == 130 and told.endswith("nothing was left behind\n"), told


def test_runs_that_fail_leave_nothing(broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for protocol in vectors.PROTOCOLS:
        wrong = {"send": None, "reply": "00"} if protocol == "felix" else {}  # no such stream
        monkeypatch.setattr(vectors, "_INSTALLED", altered(tmp_path, protocol, "fail", stream="nobody's", **wrong))
        done = penstock(*command(broker, protocol))
        assert done.returncode == 1 and done.stdout.endswith("nothing was left behind\n"), done.stdout


MAKING = {
    "rustlog": "produce_and_fetch",
    "blipmq": "qos1",
    "flymq": "produce_and_consume",
    "kimberlite": "append_and_read",
    "felix": "publish_acked",
}


def altered(place: Path, protocol: str, kind: str, **last: Any) -> Path:
    """Vectors with one conversation, which does not delete what it makes, and ends with another step."""
    folder = place / kind / protocol / protocol
    folder.mkdir(parents=True)
    for path in (VECTORS / protocol).glob("session_*.json"):
        told = json.loads(path.read_text())
        for conversation in told["conversations"]:
            if conversation["name"] == MAKING[protocol] and not any(folder.iterdir()):
                steps = [step for step in conversation["steps"] if "DELETE" not in step.get("note", "")]
                told["conversations"] = [conversation | {"steps": [*steps, {"send": "00", **last}]}]
                (folder / path.name).write_text(json.dumps(told))
                break
    assert any(folder.iterdir())
    return folder.parent


def start(place: Path, arguments: list[str]) -> subprocess.Popen[str]:
    program = (
        "import pathlib; from penstock.conformance import vectors\n"
        f"vectors._INSTALLED = pathlib.Path({str(place)!r})\n"
        "from penstock.cli.main import app; app()"
    )
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=WITHOUT_SETTINGS)


def made_by_a_run(broker: BrokerProcess, protocol: str) -> bool:
    if protocol == "kimberlite":
        with KimberliteClient(broker.address("kimberlite"), tenant=42) as client:
            return any(tenant.tenant_id > 1 << 32 for tenant in client.list_tenants())
    with FlyMq(*broker.endpoint("flymq")) as client:
        return any(name.startswith("conformance_") for name in client.list_topics())


# -- what cannot be removed


def test_what_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Felix cannot delete streams, and of no other door was told; nor can Kimberlite, and a tenant that was named is
    not deleted; a FlyMQ that sees another tenant claims nothing."""
    place = altered(tmp_path, "felix", "one", send=None, wait_ms=1)
    monkeypatch.setattr(vectors, "_INSTALLED", place)
    shutil.copytree(altered(tmp_path, "kimberlite", "one", send=None, wait_ms=1) / "kimberlite", place / "kimberlite")
    with BrokerProcess(tmp_path / "data", *OPEN).ready() as broker:
        felix = penstock(*command(broker, "felix")[:-2])
        assert felix.returncode == 0 and "left behind\ttopic conformance_" in felix.stdout
        assert "felix has no way to delete it; name FlyMQ's address" in felix.stdout
        assert "left behind\tkey" not in felix.stdout
        kimberlite = penstock(*command(broker, "kimberlite"), "--tenant", "42", "--json")
        left = json.loads(kimberlite.stdout)["left_behind"]
        assert kimberlite.returncode == 0 and {each["kind"] for each in left} == {"topic"}
        assert all("of another tenant" in each["reason"] for each in left)
        with KimberliteClient(broker.address("kimberlite"), tenant=42) as client:
            assert client.list_tables()
        listed = penstock("tenant", "list", "--data-dir", str(tmp_path / "data")).stdout
        assert [line.split()[0] for line in listed.splitlines()[1:]] == ["42", "default"]


def test_another_server_is_told_to_have_kept_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answers a RustLog conversation and knows no FlyMQ."""
    place = tmp_path / "vectors"
    (place / "rustlog").mkdir(parents=True)
    talk = {
        "name": "c",
        "why": "w",
        "source": "s",
        "steps": [{"send": "u32( '${topic}' )", "reply": "u32( '${topic}' )"}],
    }
    told = {"protocol": "rustlog", "about": "", "conversations": [talk]}
    (place / "rustlog" / "session_x.json").write_bytes(msgspec.json.encode(told))
    monkeypatch.setattr(vectors, "_INSTALLED", place)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=echo, args=(server,), daemon=True).start()
        where = f"127.0.0.1:{server.getsockname()[1]}"
        done = penstock("conformance", "--against", where, "--protocol", "rustlog", "--timeout", "2")
    assert done.returncode == 0, done.stdout
    assert "left behind\ttopic conformance_" in done.stdout and "rustlog has no way to delete it" in done.stdout


def echo(server: socket.socket) -> None:
    """Whole frames of RustLog; anything else is the end, as with the original."""
    while True:
        try:
            peer, _ = server.accept()
        except OSError:
            return
        with peer:
            while (data := peer.recv(1000)) and data[0] == 0:
                peer.sendall(data)
