"""The commands beside `serve`: what they print, and how they fail."""

from __future__ import annotations

import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess, penstock

from penstock import __version__
from penstock.clients.rustlog import Client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("data"), "--durability", "written") as broker:
        yield broker.ready().address("rustlog")


def test_version_and_help() -> None:
    assert penstock("version").stdout == f"penstock {__version__}\n"
    assert "serve" in penstock("--help").stdout
    said = penstock("serve", "--help").stdout
    for flag in ("--config", "--data-dir", "--durability", "--listen", "--allow-insecure", "--log-level"):
        assert flag in said
    assert "PENSTOCK_LOG__DURABILITY" in said


def test_config_prints_every_value_with_its_origin(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("[limits]\nconnections = 5\n")
    done = penstock(
        "config", "--config", str(file), "--listen", "http=off", "--durability", "memory", PENSTOCK_DATA_DIR="/x"
    )
    assert done.returncode == 0
    assert 'data_dir = "/x"  # PENSTOCK_DATA_DIR' in done.stdout
    assert f"connections = 5  # {file}" in done.stdout
    assert 'http = "off"  # --listen http=' in done.stdout
    assert 'durability = "memory"  # --durability' in done.stdout
    assert 'rustlog = "127.0.0.1:9092"  # default' in done.stdout
    assert tomllib.loads(done.stdout)["limits"]["connections"] == 5


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("consume", "nowhere"),
            1,
            "penstock: there is no topic 'nowhere'. Create it with `penstock topic create nowhere`",
        ),
        (("topic", "describe", "nowhere"), 1, "penstock: there is no topic 'nowhere'"),
        (("produce", "nowhere", "x"), 1, "penstock: there is no topic 'nowhere'"),
        (("topic", "create", "a//b"), 1, "penstock: "),
        (("topic", "create", "t", "--partitions", "0"), 2, "--partitions"),
        (("consume",), 2, "TOPIC"),
        (("nonsense",), 2, "nonsense"),
    ],
)
def test_mistakes_are_told_in_a_line(server: str, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = penstock(*arguments, PENSTOCK_SERVER=server)
    assert done.returncode == code
    assert said in done.stderr and "Traceback" not in done.stderr


def test_no_broker_is_told_with_what_to_do() -> None:
    done = penstock("topic", "list", "--server", "127.0.0.1:1")
    assert done.returncode == 1
    assert "no broker answers at 127.0.0.1:1" in done.stderr and "penstock serve" in done.stderr
    assert penstock("topic", "list", "--server", "nowhere").returncode == 2


def damaged(path: Path) -> Path:
    """A data directory whose second of three groups of records is damaged; the journal file."""
    with BrokerProcess(path) as broker, Client(*broker.ready().endpoint("rustlog")) as client:
        client.create_topic("t")
        for letter in (b"a", b"b", b"c"):
            client.produce("t", 0, [letter * 1000])
        broker.signal(signal.SIGKILL)
        broker.finish()
    journal = next(path.glob("journal/*.journal"))
    data = bytearray(journal.read_bytes())
    data[data.index(b"b" * 1000) + 500] ^= 1
    journal.write_bytes(data)
    return journal


def test_log_verify_tells_a_sound_log_from_a_damaged_one(tmp_path: Path) -> None:
    assert "no such directory" in penstock("log", "verify", "--data-dir", str(tmp_path / "nowhere")).stderr
    journal = damaged(tmp_path)
    before = journal.read_bytes()
    done = penstock("log", "verify", "--data-dir", str(tmp_path))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"damage: journal/{journal.name} at byte " in done.stdout
    assert journal.read_bytes() == before


def test_log_repair_asks_keeps_a_copy_and_leaves_what_was_before_the_damage(tmp_path: Path) -> None:
    journal = damaged(tmp_path)
    before = journal.read_bytes()
    done = penstock("log", "repair", "--data-dir", str(tmp_path), stdin="n\n")
    assert done.returncode == 1 and "nothing was changed" in done.stderr
    assert journal.read_bytes() == before
    done = penstock("log", "repair", "--data-dir", str(tmp_path), stdin="y\n")
    assert done.returncode == 0, done.stderr
    (kept,) = tmp_path.glob(f"removed-*/{journal.name}")
    assert kept.read_bytes() == before and str(kept.parent) in done.stdout
    done = penstock("log", "verify", "--data-dir", str(tmp_path))
    assert done.returncode == 0 and "sound" in done.stdout
    assert "nothing to repair" in penstock("log", "repair", "--data-dir", str(tmp_path), "--yes").stdout
    with BrokerProcess(tmp_path) as broker, Client(*broker.ready().endpoint("rustlog")) as client:
        assert [record.payload[:1] for record in client.fetch("t", 0, 0).records] == [b"a"]


def test_the_log_of_a_running_broker_is_left_alone(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        broker.ready()
        for command in ("verify", "repair"):
            done = penstock("log", command, "--data-dir", str(tmp_path))
            assert done.returncode == 1 and f"in use by process {broker.process.pid}" in done.stderr
