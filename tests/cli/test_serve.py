"""`penstock serve` as an operator meets it: what it prints, how it stops, and how it refuses to start."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import time
import urllib.request
from functools import partial
from pathlib import Path

import pytest
from tests import launcher
from tests.fuzz.wire import Pump
from tests.launcher import COMMAND, other_doors, penstock
from tests.process_stats import resident_bytes

from penstock.clients.rustlog import Client
from penstock.config.settings import DOOR_NAMES
from penstock.server.doors import BUILT

BrokerProcess = partial(launcher.BrokerProcess, program=COMMAND)  # as an operator would start it

PING = struct.pack(">IB", 1, 0xFF)


def frame(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def test_the_start_block_says_what_is_open_where_and_how_to_stop(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--durability", "written", "--listen", "felix=off") as broker:
        block = broker.ready().block
        assert f"data        {tmp_path}" in block
        assert "durability  written" in block
        assert "security    off" in block
        assert "felix       off" in block
        for name in set(DOOR_NAMES) - set(BUILT) - {"felix"}:
            assert f"  {name:<12}closed (not built yet)" in block
        assert f"Process {broker.process.pid} is ready" in block and "Ctrl-C" in block
        with urllib.request.urlopen(f"http://{broker.address('http')}/health") as answer:
            assert json.load(answer)["durability"] == "written"
        with urllib.request.urlopen(f"http://{broker.address('rustlog')}/metrics") as answer:
            assert b"active_connections 1.0" in answer.read()


def test_acknowledged_records_are_there_after_kill_9(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with Client(*broker.ready().endpoint("rustlog")) as client:
            client.create_topic("logs", 2)
            client.produce("logs", 0, [b"one", b"two"])
            client.commit_offset("group", "logs", 0, 1)
        broker.signal(signal.SIGKILL)
        assert broker.finish()[0] == -signal.SIGKILL
    with BrokerProcess(tmp_path) as broker, Client(*broker.ready().endpoint("rustlog")) as client:
        assert [record.payload for record in client.fetch("logs", 0, 0).records] == [b"one", b"two"]
        assert client.fetch_offset("group", "logs", 0) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_it_answer_what_it_accepted_and_end_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with BrokerProcess(tmp_path) as broker:
        with socket.create_connection(broker.ready().endpoint("rustlog")) as connection:
            create = frame(b'{"type":"CreateTopic","topic":"t","partition_count":1}')
            produce = frame(b'{"type":"Produce","topic":"t","partition":0,"records":["eA=="]}')
            connection.sendall(PING)
            assert connection.recv(100) == PING
            connection.sendall(create + produce * 50)
            received = connection.recv(10)  # the broker has begun with them
            broker.signal(number)
            while data := connection.recv(1 << 16):
                received += data
        code, out, err = broker.finish()
        assert (code, err) == (0, "")
        assert "stopped cleanly" in out
    answered = received.count(b"ProduceResponse")
    assert answered >= 1
    with BrokerProcess(tmp_path) as broker, Client(*broker.ready().endpoint("rustlog")) as client:
        assert client.describe_partition("t", 0).high_watermark >= answered


def test_it_stops_although_a_client_stays_connected(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path) as broker,
        socket.create_connection(broker.ready().endpoint("rustlog")) as connection,
    ):
        connection.sendall(PING)
        assert connection.recv(100) == PING
        broker.signal(signal.SIGTERM)
        code, out, _ = broker.finish()
        assert code == 0 and "stopped cleanly" in out
        assert connection.recv(100) == b""


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    """A client that takes nothing of a long answer keeps the broker busy for its whole grace period."""
    fetch = frame(struct.pack(">BHH1sIQI", 2, 0, 1, b"t", 0, 0, 10_000_000))
    with BrokerProcess(tmp_path, PENSTOCK_LIMITS__SHUTDOWN_SECONDS="60") as broker:
        with Client(*broker.ready().endpoint("rustlog"), dialect="binary") as client:
            client.create_topic("t")
            for _ in range(4):
                client.produce("t", 0, [bytes(7_000_000)])
        with socket.create_connection(broker.endpoint("rustlog")) as connection:
            connection.sendall(fetch * 4)
            assert connection.recv(1)
            broker.signal(signal.SIGTERM)
            assert broker.process.stdout is not None
            assert "SIGTERM" in broker.process.stdout.readline()
            with pytest.raises(OSError, match="refused"):
                for _ in range(1000):  # the doors close right after the line that was read
                    socket.create_connection(broker.endpoint("rustlog")).close()
                    time.sleep(0.01)
            broker.signal(signal.SIGTERM)
            assert broker.finish(5)[0] == 128 + signal.SIGTERM


def refused(*arguments: str, **environment: str) -> str:
    """The one line with which `serve` refuses to start."""
    done = penstock("serve", *arguments, *other_doors(arguments), **environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    assert done.stderr.startswith("penstock: ")
    return done.stderr


def test_a_process_that_cannot_start_ends_with_a_line_and_code_1(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--durability", "perhaps") as broker:
        code, out, err = broker.finish()
    assert (code, out) == (1, "") and err.startswith("penstock: --durability: ") and err.count("\n") == 1


def test_a_taken_port_is_named_with_the_flag_that_changes_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused("--data-dir", str(tmp_path), "--listen", f"rustlog={address}", "--listen", "http=off")
    assert f"rustlog: {address} is taken" in said and "--listen rustlog=" in said


def test_all_ports_that_are_taken_are_told_at_once(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in taken]
        flags = [f"--listen={door}={at}" for door, at in zip(("rustlog", "http", "flight"), addresses, strict=True)]
        done = penstock("serve", "--data-dir", str(tmp_path / "data"), *flags, "--listen=felix=off")
    assert done.returncode == 1
    for door, address in zip(("rustlog", "http", "flight"), addresses, strict=True):
        assert f"{door}: {address} is taken" in done.stderr
    assert not (tmp_path / "data" / "journal").exists()  # nothing else was begun


def test_a_journal_that_is_gone_stops_the_start_with_what_is_missing_and_the_ways_out(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        broker.ready()
        broker.signal(signal.SIGKILL)  # so that there is no snapshot
        broker.finish()
    for path in (tmp_path / "journal").iterdir():
        path.unlink()
    said = refused("--data-dir", str(tmp_path), "--listen", "rustlog=127.0.0.1:0", "--listen", "http=off")
    assert "the journal is gone: there is no segment in journal/" in said and "IDENTITY" in said
    assert "--data-dir" in said and "Nothing was changed" in said
    assert list((tmp_path / "journal").iterdir()) == []


def test_a_second_broker_on_the_same_directory_is_told_who_holds_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        broker.ready()
        said = refused("--data-dir", str(tmp_path), "--listen", "rustlog=127.0.0.1:0", "--listen", "http=off")
        assert f"in use by process {broker.process.pid}" in said


def test_a_damaged_log_stops_the_start_with_file_and_position(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, Client(*broker.ready().endpoint("rustlog")) as client:
        client.create_topic("t")
        for _ in range(3):
            client.produce("t", 0, [b"x" * 1000])
        broker.signal(signal.SIGKILL)
        broker.finish()
    journal = next(tmp_path.glob("journal/*.journal"))
    data = bytearray(journal.read_bytes())
    data[data.index(b"x" * 1000) + 500] ^= 1
    journal.write_bytes(data)
    said = refused("--data-dir", str(tmp_path), "--listen", "rustlog=127.0.0.1:0", "--listen", "http=off")
    assert journal.name in said and "is damaged at byte" in said and "penstock log verify" in said


def test_a_bad_configuration_is_refused_with_its_key(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("[log]\ndurabilty = 'synced'\n")
    assert f"{file}: there is no key `log.durabilty`" in refused("--config", str(file))
    assert f"{file}: there is no key `log.durabilty`" in refused(PENSTOCK_CONFIG=str(file))
    assert "PENSTOCK_LIMITS__CONNECTIONS: `limits.connections`" in refused(PENSTOCK_LIMITS__CONNECTIONS="-3")
    assert "--durability: `log.durability`" in refused("--durability", "perhaps")
    assert "tls.cert" in refused(
        "--data-dir", str(tmp_path), PENSTOCK_TLS__CERT="/nowhere.crt", PENSTOCK_TLS__KEY="/nowhere.key"
    )


def test_a_data_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    said = refused("--data-dir", str(file), "--listen", "rustlog=127.0.0.1:0", "--listen", "http=off")
    assert str(file) in said


@pytest.mark.parametrize("item", ["kafka=127.0.0.1:1", "rustlog"])
def test_a_listen_flag_that_means_nothing_is_a_usage_error(item: str) -> None:
    done = penstock("serve", "--listen", item)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"--listen {item}" in done.stderr
    if "=" in item:
        assert "rustlog, blipmq, flymq, kimberlite, felix, http, flight" in done.stderr


def test_without_security_it_does_not_open_to_the_network_unless_told_to(tmp_path: Path) -> None:
    said = refused("--data-dir", str(tmp_path), "--listen", "rustlog=0.0.0.0:0", "--listen", "http=off")
    assert "rustlog would be open to the network at 0.0.0.0:0" in said
    assert "--listen rustlog=127.0.0.1" in said and 'mode = "on"' in said and "--allow-insecure" in said
    assert not os.listdir(tmp_path)
    with BrokerProcess(tmp_path, "--listen", "rustlog=0.0.0.0:0", "--allow-insecure") as broker:
        assert "0.0.0.0:" in broker.ready().block
    with BrokerProcess(tmp_path, "--listen", "rustlog=0.0.0.0:0", PENSTOCK_SECURITY__MODE="on") as broker:
        assert "security    on" in broker.ready().block


def test_with_security_on_what_no_grant_allows_is_denied(tmp_path: Path) -> None:
    grants = '[{"principal": "anonymous", "permissions": ["create", "describe"], "topic": "mine-*"}]'
    environment = {"PENSTOCK_SECURITY__MODE": "on", "PENSTOCK_SECURITY__GRANTS": grants}
    with BrokerProcess(tmp_path, **environment) as broker, Client(*broker.ready().endpoint("rustlog")) as client:
        client.create_topic("mine-1")
        assert [topic.name for topic in client.list_topics()] == ["mine-1"]
        with pytest.raises(Exception, match="may not"):
            client.create_topic("yours")
        with pytest.raises(Exception, match="may not"):
            client.produce("mine-1", 0, [b"x"])


def test_it_also_runs_without_uvloop(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "uvloop.py"
    hidden.parent.mkdir()
    hidden.write_text("raise ImportError('hidden by a test')\n")
    with (
        BrokerProcess(tmp_path / "data", PYTHONPATH=str(hidden.parent)) as broker,
        Client(*broker.ready().endpoint("rustlog")) as client,
    ):
        client.create_topic("t")
        client.produce("t", 0, [b"x"])
        client.close()
        broker.signal(signal.SIGTERM)
        code, out, err = broker.finish()
        assert code == 0 and "stopped cleanly" in out and "uvloop is not installed" in err


def test_a_client_that_asks_for_much_and_takes_nothing_costs_little_and_harms_nobody(tmp_path: Path) -> None:
    """20,000 requests for 7 MB each, sent at once, would be 140 GB of replies."""
    fetch = frame(struct.pack(">BHH1sIQI", 2, 0, 1, b"t", 0, 0, 10_000_000))
    with (
        BrokerProcess(tmp_path, "--durability", "written") as broker,
        Client(*broker.ready().endpoint("rustlog"), dialect="binary") as client,
    ):
        client.create_topic("t")
        client.produce("t", 0, [bytes(7_000_000)])
        client.fetch("t", 0, 0, 10_000_000)
        before = resident_bytes(broker.process.pid)
        with socket.create_connection(broker.endpoint("rustlog")) as greedy:
            sent = Pump(greedy, fetch * 1000).send(20_000 * len(fetch), seconds=1)  # until the broker stops reading
            assert greedy.recv(1) and sent >= 10 * len(fetch)
            for _ in range(20):
                client.ping()
                client.produce("t", 0, [b"x"])
            assert resident_bytes(broker.process.pid) - before < 64 << 20


def test_log_lines_are_json_in_a_pipe_and_text_on_demand(tmp_path: Path) -> None:
    def said_to_a_stranger(**environment: str) -> str:
        """The log lines about a client that speaks the protocol of a closed door."""
        with BrokerProcess(tmp_path, "--listen", "flymq=off", **environment) as broker:
            host, port = broker.ready().address("rustlog").rsplit(":", 1)
            with socket.create_connection((host, int(port))) as client:
                client.sendall(b"\xaf\x01\x02\x03")
                with contextlib.suppress(ConnectionResetError):
                    assert client.recv(1) == b""
            broker.process.terminate()
            return broker.process.communicate(timeout=60)[1]

    (line,) = [line for line in said_to_a_stranger().splitlines() if "speaks flymq" in line]
    found = json.loads(line)
    assert found["level"] == "info" and found["logger"] == "penstock.transport.tcp_connection"
    assert found["peer"].startswith("127.0.0.1:") and found["protocol"] == "flymq"
    (line,) = [line for line in said_to_a_stranger(PENSTOCK_LOG_FORMAT="text").splitlines() if "speaks flymq" in line]
    assert "[info" in line and "protocol=flymq" in line and not line.startswith("{")
