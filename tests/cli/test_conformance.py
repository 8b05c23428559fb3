"""`penstock conformance`, as somebody types it: with our codecs, and against a real broker."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess, penstock

from penstock.conformance import vectors
from penstock.transport.quic.certificate import make

VECTORS = Path(__file__).parents[2] / "conformance" / "vectors"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conformance")


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(data, "--listen", "felix=127.0.0.1:0").ready() as running:
        yield running


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Vectors that a test may change."""
    place = tmp_path / "vectors"
    shutil.copytree(VECTORS, place)
    monkeypatch.setattr(vectors, "_INSTALLED", place)
    return place


# -- our codecs


def test_all_vectors_are_checked_and_counted() -> None:
    done = penstock("conformance")
    assert done.returncode == 0, done.stdout
    for protocol, group in (("felix", "frame_valid"), ("kimberlite", "greeting_valid"), ("blipmq", "frame_invalid")):
        assert any(line.split()[:2] == [protocol, group] for line in done.stdout.splitlines())
    assert "failed\t" not in done.stdout


def test_one_protocol_is_checked() -> None:
    done = penstock("conformance", "--protocol", "blipmq")
    assert done.returncode == 0 and "felix" not in done.stdout and "blipmq" in done.stdout


def test_each_vector_is_told_if_that_is_wanted() -> None:
    done = penstock("conformance", "--protocol", "felix", "--all")
    assert "ok\tfelix/original/binary_publish_acked" in done.stdout


def test_machines_get_json() -> None:
    done = penstock("conformance", "--protocol", "felix", "--json")
    said = json.loads(done.stdout)
    assert said["ok"] is True and said["counts"]["failed"] == 0 and len(said["results"]) == said["counts"]["ok"]
    assert {"protocol", "name", "status", "detail", "why", "source"} == set(said["results"][0])


def test_a_wrong_vector_is_told_with_what_it_shows(copy: Path) -> None:
    file = copy / "blipmq" / "frame_valid.json"
    file.write_text(file.read_text().replace('"correlation_id": 42', '"correlation_id": 43').replace("dev-key", "d"))
    done = penstock("conformance", "--protocol", "blipmq")
    assert done.returncode == 1
    assert "failed\tblipmq/frame_valid/auth\n\tkey is 'dev-key', 'd' expected" in done.stdout
    assert "spec, Hex-Encoded Sample Frames" in done.stdout


def test_a_file_that_cannot_be_read_is_told(copy: Path) -> None:
    (copy / "blipmq" / "frame_valid.json").write_text("{")
    done = penstock("conformance", "--protocol", "blipmq")
    assert done.returncode == 1 and "frame_valid.json" in done.stderr and "Traceback" not in done.stderr


# -- a server


@pytest.mark.parametrize("protocol", vectors.PROTOCOLS)
def test_a_real_broker_passes(broker: BrokerProcess, protocol: str) -> None:
    where = broker.address(protocol)
    done = penstock("conformance", "--against", where, "--protocol", protocol, "--json", "--timeout", "10")
    said = json.loads(done.stdout)
    assert [each for each in said["results"] if each["status"] == "failed"] == []
    assert done.returncode == 0 and said["counts"]["ok"] >= 20


@pytest.mark.parametrize(
    ("file", "written", "instead", "failed"),
    [
        ("blipmq/session_basics", "'unauthenticated'", "'who are you'", "unauthenticated\n\tstep 2: at byte"),
        ("rustlog/session_json", '"type": "Pong"', '"type": "Gong"', "ping\n\tstep 1: the reply.type is 'Pong'"),
        ("felix/session_document", '"gamma"', '"delta"', "subscribe\n\tstep 9: the events were"),
        ("felix/session_original", '"publish_ok"', '"ok"', "acks_in_order\n\tstep 8: the reply.type is 'publish_ok'"),
        ("felix/session_original", '"encoding": "binary"', '"encoding": "json"', "json events were expected"),
    ],
)
def test_a_conversation_that_goes_otherwise_is_told(
    broker: BrokerProcess, copy: Path, file: str, written: str, instead: str, failed: str
) -> None:
    protocol = file.partition("/")[0]
    for other in (copy / protocol).glob("session_*.json"):
        if other.stem != file.partition("/")[2]:
            other.unlink()
    path = copy / f"{file}.json"
    path.write_text(path.read_text().replace(written, instead))
    done = penstock("conformance", "--against", broker.address(protocol), "--protocol", protocol, "--timeout", "10")
    assert done.returncode == 1 and failed in done.stdout


def test_what_cannot_be_said_is_not_played(broker: BrokerProcess) -> None:
    """The document's dialect of Felix has no login."""
    where = broker.address("felix")
    done = penstock("conformance", "--against", where, "--protocol", "felix", "--token", "x", "--timeout", "10")
    assert done.returncode == 0 and "there is no way to say --token" in done.stdout
    assert "felix     session_document     0" in done.stdout


@pytest.mark.parametrize("protocol", ["rustlog", "felix"])
def test_nobody_there_is_told(protocol: str) -> None:
    with socket.socket() as one:  # a port that is taken, and on which nobody listens
        one.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{one.getsockname()[1]}"
        done = penstock("conformance", "--against", where, "--protocol", protocol, "--timeout", "0.5")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert where in done.stderr and f"Is this where {protocol} is spoken?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--against", "127.0.0.1:1"), "say with --protocol"),
        (("--against", "nowhere", "--protocol", "blipmq"), "expected HOST:PORT"),
        (("--against", "off", "--protocol", "blipmq"), "expected HOST:PORT"),
        (("--protocol", "mqtt"), "'mqtt' is not one of"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], said: str) -> None:
    done = penstock("conformance", *arguments)
    assert done.returncode == 2 and said in done.stderr


def test_a_certificate_file_that_is_not_there_is_told() -> None:
    for protocol in ("blipmq", "felix"):
        done = penstock("conformance", "--against", "127.0.0.1:1", "--protocol", protocol, "--tls-ca", "/nowhere.pem")
        assert done.returncode == 1 and done.stderr == "penstock: --tls-ca /nowhere.pem: No such file or directory\n"


def test_a_certificate_can_be_asked_for(broker: BrokerProcess, copy: Path, data: Path, tmp_path: Path) -> None:
    """The broker's own is trusted as it is; that of another server is refused."""
    (copy / "felix" / "session_document.json").unlink()
    (copy / "felix" / "session_original.json").unlink()
    command = ("conformance", "--against", broker.address("felix"), "--protocol", "felix", "--timeout", "10")
    (own,) = data.glob("certificates/*.crt")
    assert penstock(*command, "--tls-ca", str(own)).returncode == 0
    other = tmp_path / "other.crt"
    other.write_bytes(make(datetime.now(UTC), "localhost")[0])
    refused = penstock(*command, "--tls-ca", str(other))
    assert refused.returncode == 1 and "certificate is not accepted" in refused.stderr
