"""`penstock up`: the broker and the generator, without Java; what it says, and how it stops."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.launcher import COMMAND, WITHOUT_SETTINGS, BrokerProcess, other_doors
from tests.snippets import ON_PATH

from penstock.cli.generator import DOORS, Doors, Shop, amounts, generate
from penstock.cli.up import BACKOFF, STEADY_SECONDS
from penstock.clients.rustlog import Client
from penstock.retry import RestartBackoff
from penstock.transport.endpoint import Endpoint

FLIGHT = ("--listen", "flight=127.0.0.1:0")
FELIX = ("--listen", "felix=127.0.0.1:0")


class Up:
    """`penstock up` on ports that the system chooses, where `flags` do not say otherwise."""

    def __init__(self, data_dir: Path, *flags: str, **environment: str) -> None:
        flags = flags or FLIGHT
        self.process = subprocess.Popen(
            [*COMMAND, "up", "--data-dir", str(data_dir), *flags, *other_doors(flags)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=WITHOUT_SETTINGS | {"PENSTOCK_TABLES__ENABLED": "false"} | environment,
        )
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line

    def wait_for(self, text: str, seconds: float) -> None:
        self.wait_for_times(text, 1, seconds)

    def wait_for_times(self, text: str, times: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.said.count(text) < times:
            assert self.process.poll() is None and time.monotonic() < deadline, self.said
            time.sleep(0.05)

    def commands(self) -> list[str]:
        """Commands to try, of the last block."""
        return re.findall(r"^    (\S.*)$", self.said.rpartition("Try")[2], re.MULTILINE)

    def endpoint(self, door: str) -> tuple[str, int]:
        [address] = {line.split()[1] for line in self.said.splitlines() if line.startswith(f"  {door} ")}
        host, _, port = address.rpartition(":")
        return host, int(port)

    def stop(self, seconds: float = 60) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(seconds)
        self._reader.join(10)
        return code

    def __enter__(self) -> Up:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(90)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_without_java_the_broker_starts_and_says_that_the_pipeline_does_not(tmp_path: Path) -> None:
    without = {"PATH": os.path.dirname(sys.executable), "JAVA_HOME": str(tmp_path)}
    with Up(tmp_path / "data", PENSTOCK_PIPELINE__EVENTS_PER_SECOND="100", **without) as up:
        up.wait_for("supervises all of this", 60)
        assert "pipeline    not started: Spark needs Java 17 or newer" in up.said
        assert "openjdk-17-jre-headless" in up.said
        for command in up.commands():  # at once: what is printed works
            done = subprocess.run(
                ["sh", "-c", command], cwd=tmp_path, env=WITHOUT_SETTINGS | ON_PATH, capture_output=True, text=True
            )
            assert done.returncode == 0 and done.stdout, (command, done.stderr)
        with Client(*up.endpoint("rustlog")) as client:
            assert client_has(client, 1)
        assert up.stop() == 0
    assert "stopped cleanly" in up.said
    assert not any(str(tmp_path) in command for command in _commands())


@pytest.mark.parametrize("make", [True, False])
def test_ports_that_are_taken_are_all_told_with_the_flags_that_move_them(tmp_path: Path, make: bool) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
        socket.socket(type=socket.SOCK_DGRAM) as udp,
    ):
        udp.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in (one, two, udp)]
        doors = dict(zip(("rustlog", "flymq", "http", "felix"), (addresses[0], *addresses), strict=True))
        flags = [part for door, address in doors.items() for part in ("--listen", f"{door}={address}")]
        done = subprocess.run(
            [*COMMAND, "up", "--data-dir", str(tmp_path / "data"), *flags, *other_doors(flags)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={name: text for name, text in WITHOUT_SETTINGS.items() if name != "MAKELEVEL"}
            | ({"MAKELEVEL": "1"} if make else {}),
        )
    assert done.returncode == 1 and "these 3 ports are taken" in done.stderr
    for names, address in zip(("rustlog, flymq", "http", "felix"), addresses, strict=True):
        assert re.search(rf"^  {names} +{address}$", done.stderr, re.MULTILINE), done.stderr
    [command] = re.findall(r'^  make up UP="(.*)"$' if make else r"^  penstock up (.*)$", done.stderr, re.MULTILINE)
    moved = dict(item.split("=") for item in command.removeprefix("--listen ").split(" --listen "))
    assert set(moved) == set(doors) and not set(moved.values()) & set(addresses)
    assert moved["rustlog"] == moved["flymq"]
    assert not (tmp_path / "data").exists()


def test_with_security_on_it_says_what_is_not_started_and_how_to_get_in(tmp_path: Path) -> None:
    with Up(tmp_path / "data", PENSTOCK_SECURITY__MODE="on") as up:
        up.wait_for("supervises all of this", 60)
        assert "generator   not started: security is on" in up.said
        assert "pipeline    not started: security is on" in up.said
        assert "users add alice --role admin --data-dir" in up.said
        assert up.stop() == 0


def test_when_it_is_killed_nothing_is_left_behind(tmp_path: Path) -> None:
    without = {"PATH": os.path.dirname(sys.executable), "JAVA_HOME": str(tmp_path)}
    with Up(tmp_path / "data", **without) as up:
        up.wait_for("supervises all of this", 60)
        up.process.kill()
        deadline = time.monotonic() + 30
        while any(str(tmp_path) in command for command in _commands()):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _commands() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def test_the_generator_writes_through_five_protocols_and_survives_a_broker_that_goes_away(tmp_path: Path) -> None:
    stopped = threading.Event()
    said: list[str] = []
    with BrokerProcess(tmp_path / "data", *FELIX, PENSTOCK_KIMBERLITE__TENANTS="1=default").ready() as broker:
        doors = Doors({name: Endpoint(*broker.endpoint(name)) for name in DOORS})
        arguments = (doors, Shop(random.Random(7)), 200.0, stopped, said.append)
        thread = threading.Thread(target=generate, args=arguments, daemon=True)
        thread.start()
        with Client(*broker.endpoint("rustlog")) as client:
            deadline = time.monotonic() + 30
            while not (said and client_has(client, 30)):
                assert time.monotonic() < deadline, said
                time.sleep(0.05)
    deadline = time.monotonic() + 30
    while len(said) < 2:
        assert time.monotonic() < deadline, said
        time.sleep(0.05)
    stopped.set()
    thread.join(30)
    doors.end()
    assert said[0] == "the first events are there" and said[1].startswith("the broker does not take records")


def client_has(client: Client, count: int) -> bool:
    if {"orders", "page_views", "payments"} - {topic.name for topic in client.list_topics()}:
        return False
    return all(
        sum(client.describe_partition(topic, number).high_watermark for number in range(partitions)) >= count
        for topic, partitions in (("orders", 2), ("page_views", 2), ("payments", 1))
    )


def test_most_of_what_happens_in_the_shop_makes_sense() -> None:
    shop = Shop(random.Random(1))
    good = bad = 0
    for _ in range(1000):
        for text, needed in ((shop.order(1000.5), "order_id"), (shop.page_view(1000.5, "felix")[1], "view_id")):
            try:
                event = json.loads(text)
                late = event.get("ordered_at", event.get("viewed_at")) == "1970-01-01T00:14:40.500Z"
                assert late or event.get("ordered_at", event.get("viewed_at")) == "1970-01-01T00:16:40.500Z"
                good += needed in event
            except (ValueError, AssertionError):
                bad += 1
    assert 10 < bad < 100 and good + bad == 2000


def test_few_events_a_turn_add_up_to_the_right_number() -> None:
    turns = amounts(3.0)
    counts = [next(turns) for _ in range(40)]  # 20 seconds
    assert [sum(turn[kind] for turn in counts) for kind in range(4)] == pytest.approx([18, 24, 12, 6], abs=1)


def test_what_crashes_is_started_again_ever_later() -> None:
    backoff = RestartBackoff(*BACKOFF, STEADY_SECONDS)
    waits = [backoff.delay(1.0) for _ in range(8)]
    assert waits[:3] == [BACKOFF[0], BACKOFF[0] * 2, BACKOFF[0] * 4] and waits[-1] == BACKOFF[1]
    assert backoff.delay(STEADY_SECONDS) == BACKOFF[0]
