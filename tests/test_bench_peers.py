"""`make bench-peers`: its load generator counts what was answered, and charges a server for all whom it keeps waiting;
its results have medians and plots."""

from __future__ import annotations

import socket
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.peers import conversations, generator, parts, results, servers
from benchmarks.peers.conversations import CONNECTION, Conversation
from benchmarks.peers.generator import Lane, Load, closed_loop, open_loop
from benchmarks.peers.results import Series

REPLIES = {False: b"12345678", True: b"$3\r\nabc\r\n"}


@contextmanager
def server(connections: int = 1, *, lines: bool = False, stall: float = 0.0) -> Iterator[int]:
    """Answers each request of 4 bytes; with a `stall`, once, that many seconds late."""
    stalls = [stall]

    def serve(peer: socket.socket) -> None:
        with peer:
            while data := peer.recv(1 << 16):
                time.sleep(stalls.pop() if stalls and stall else 0)
                while len(data) % 4:
                    data += peer.recv(1)
                peer.sendall(REPLIES[lines] * (len(data) // 4))

    def accept() -> None:
        for _ in range(connections):
            threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]


@contextmanager
def lanes(port: int, conversation: Conversation, count: int = 1) -> Iterator[list[Lane]]:
    made = [Lane(port, conversation) for _ in range(count)]
    try:
        yield made
    finally:
        for lane in made:
            lane.peer.close()


@pytest.mark.process
@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("", "redis-server is not on PATH and is left out. Debian"),
        ("nats-server: v2.9.10", "nats-server 2.9 is older than 2.10 and is left out. go install"),
        ("nats-server: v2.10.0", None),
        ("nats-server: dev", None),
    ],
)
def test_a_program_that_cannot_be_measured_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, expected: str | None
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    kind: type[servers.Program] = servers.Redis
    if told:
        kind = servers.Nats
        program = tmp_path / kind.program
        program.write_text(f"#!/bin/sh\necho '{told}'\n")
        program.chmod(0o755)
    (tmp_path / "server").mkdir()
    there = [type(server) for server in servers.all_of(str(tmp_path / "server"), servers.WRITTEN, None)]
    lines = [line for line in servers.left_out() if line.startswith(kind.program)]
    assert (kind in there) is (expected is None)
    assert [line[: len(expected or "")] for line in lines] == ([] if expected is None else [expected])


@pytest.mark.parametrize("lines", [False, True])
def test_a_closed_loop_counts_every_reply(lines: bool) -> None:
    conversation = Conversation([b"abcd", b"efgh"], 2 if lines else 8, lines)
    with server(2, lines=lines) as port, lanes(port, conversation, 2) as both:
        sample = closed_loop(Load(port, conversation, 0.05, 2, 3), both)
    assert sample.count >= 6
    assert sample.seconds >= 0.05


def test_an_open_loop_charges_a_stall_to_all_who_came_meanwhile() -> None:
    conversation = Conversation([b"abcd"], 8)
    with server(stall=0.3) as port, lanes(port, conversation) as one:
        sample = open_loop(Load(port, conversation, 0.3, rate=1000), one)
    late = [latency for latency in sample.latencies if latency > 0.05]
    assert len(late) > 100, "a closed loop would have had one"


def test_nats_has_an_inbox_for_each_connection() -> None:
    talk = conversations.nats(10).numbered_for(17)
    assert b"_INBOX.000017" in talk.requests[0] and b"SUB _INBOX.000017" in talk.greeting
    assert CONNECTION not in talk.greeting


def test_what_is_no_reply_is_noticed_before_anything_is_measured() -> None:
    with server() as port, pytest.raises(RuntimeError, match="does not store"):
        generator.prepare(port, Conversation([b"abcd"], 8, first=b"other"))


def test_a_group_stands_for_its_parts() -> None:
    assert parts.chosen(None) == list(parts.PARTS)
    assert parts.chosen(["table", "growth"]) == ["table", *parts.GROUPS["growth"]]
    assert set(parts.GROUPS["growth"]) < set(parts.PARTS)


def test_results_are_medians_with_their_spread_and_a_plot(tmp_path: Path) -> None:
    series = Series("sizes", "Throughput <by> size", "bytes", "MB/s")
    for value in (3.0, 1.0, 2.0):
        series.add("one", 64, value)
        series.add("two", 64, 10 * value)
        series.add("one", 128, 2 * value)
    assert "| 64 | 2.00 (1.00–3.00) | 20.0 (10.0–30.0) |" in series.markdown()
    assert "| 128 | 4.00 (2.00–6.00) | – |" in series.markdown()
    files = results.write(str(tmp_path / "out"), str(tmp_path / "pictures"), {"system": "this"}, ["fast"], [series])
    assert str(tmp_path / "pictures" / "sizes.svg") in files
    assert "(../pictures/sizes.svg)" in (tmp_path / "out" / "results.md").read_text()
    picture = ET.fromstring(series.plot().svg())
    assert len(picture.findall("{http://www.w3.org/2000/svg}polyline")) == 2
