"""The tour of the README, and what an operator may do to a broker on the way: kill it, stop it, start it twice, give
it a certificate, and let old records go."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import socket
import ssl
import struct
import threading
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests import launcher
from tests.launcher import COMMAND, penstock
from tests.transport.certificates import Authority

from penstock.clients.rustlog import AsyncClient, Client, ClientError
from penstock.wire.rustlog.messages import FetchResponse, Produce, TopicSummary

BrokerProcess = partial(launcher.BrokerProcess, program=COMMAND)  # as an operator would start it

both = pytest.mark.parametrize("dialect", ["json", "binary"])


def payloads(fetched: FetchResponse) -> list[bytes]:
    return [record.payload for record in fetched.records]


def kill(broker: launcher.BrokerProcess) -> None:
    broker.signal(signal.SIGKILL)
    assert broker.finish()[0] == -signal.SIGKILL


# -- create, produce, fetch, kill, start again


@both
def test_the_tour_with_the_blocking_client(tmp_path: Path, dialect: str) -> None:
    with BrokerProcess(tmp_path) as broker:
        with Client(*broker.ready().endpoint("rustlog"), dialect=dialect) as client:
            client.ping()
            assert client.create_topic("orders", 2).success
            assert client.produce("orders", 0, [b"one", b"two"]).base_offset == 0
            assert client.produce("orders", 0, [b"three"]).base_offset == 2
            assert client.produce("orders", 1, [b"\x00\xff", b""]).record_count == 2
            assert payloads(client.fetch("orders", 0, 1)) == [b"two", b"three"]
            assert client.commit_offset("billing", "orders", 0, 2)
            assert client.fetch_offset("billing", "orders", 0) == 2
            assert client.fetch_offset("billing", "orders", 1) is None
            first = client.fetch("orders", 0, 0)
            described = client.describe_topic("orders")
            assert [partition.high_watermark for partition in described.partitions] == [3, 2]
        kill(broker)
    with (
        BrokerProcess(tmp_path) as broker,
        Client(*broker.ready().endpoint("rustlog"), dialect=dialect) as client,
    ):
        assert client.list_topics() == [TopicSummary("orders", 2)]
        assert client.fetch("orders", 0, 0) == first  # the same payloads, offsets and timestamps
        assert payloads(client.fetch("orders", 1, 0)) == [b"\x00\xff", b""]
        assert client.fetch_offset("billing", "orders", 0) == 2
        assert client.fetch_offset("billing", "orders", 1) is None
        assert client.describe_topic("orders") == described
        assert client.produce("orders", 0, [b"four"]).base_offset == 3
        assert "messages_produced_total" in client.metrics()


@both
def test_the_tour_with_the_asyncio_client(tmp_path: Path, dialect: str) -> None:
    async def before(address: tuple[str, int]) -> None:
        async with AsyncClient(*address, dialect=dialect) as client:
            await client.create_topic("orders", 2)
            produced = await client.produce_many([Produce("orders", 1, [b"%d" % number]) for number in range(200)])
            assert [response.base_offset for response in produced] == list(range(200))
            several = await asyncio.gather(*(client.produce("orders", 0, [b"a", b"b"]) for _ in range(10)))
            assert sorted(response.base_offset for response in several) == list(range(0, 20, 2))
            assert await client.commit_offset("billing", "orders", 1, 150)

    async def after(address: tuple[str, int]) -> None:
        async with AsyncClient(*address, dialect=dialect) as client:
            assert payloads(await client.fetch("orders", 0, 0)) == [b"a", b"b"] * 10
            assert payloads(await client.fetch("orders", 1, 0)) == [b"%d" % number for number in range(200)]
            assert await client.fetch_offset("billing", "orders", 1) == 150
            assert [topic.partition_count for topic in await client.list_topics()] == [2]

    with BrokerProcess(tmp_path) as broker:
        asyncio.run(before(broker.ready().endpoint("rustlog")))
        kill(broker)
    with BrokerProcess(tmp_path) as broker:
        asyncio.run(after(broker.ready().endpoint("rustlog")))


def test_both_dialects_and_both_clients_see_one_log(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        address = broker.ready().endpoint("rustlog")
        with Client(*address) as json_client, Client(*address, dialect="binary") as binary_client:
            json_client.create_topic("t")
            assert json_client.produce("t", 0, [b"from json"]).base_offset == 0
            assert binary_client.produce("t", 0, [b"from binary"]).base_offset == 1
            for client in (json_client, binary_client):
                assert payloads(client.fetch("t", 0, 0)) == [b"from json", b"from binary"]
            binary_client.commit_offset("g", "t", 0, 1)
            assert json_client.fetch_offset("g", "t", 0) == 1


def test_the_tour_with_the_command(tmp_path: Path) -> None:
    """The commands of the README, in its order, with what it says they print."""
    with BrokerProcess(tmp_path) as broker:
        at = {"PENSTOCK_SERVER": broker.ready().address("rustlog")}
        assert (
            penstock("topic", "create", "logs", "--partitions", "2", **at).stdout
            == "created logs with 2 partition(s)\n"
        )
        assert penstock("produce", "logs", "hello", "world", **at).stdout == "logs/0: offsets 0 to 1\n"
        lines = "".join(f"{number}\n" for number in range(1, 2501))
        done = penstock("produce", "logs", "--partition", "1", stdin=lines, **at)
        assert done.stdout == "logs/1: offsets 0 to 2499\n"
        assert (
            penstock("consume", "logs", "--partition", "0", "--format", "%o %v\\n", **at).stdout == "0 hello\n1 world\n"
        )
        kill(broker)
    with BrokerProcess(tmp_path) as broker:
        at = {"PENSTOCK_SERVER": broker.ready().address("rustlog")}
        assert (
            penstock("consume", "logs", "--partition", "0", "--format", "%o %v\\n", **at).stdout == "0 hello\n1 world\n"
        )
        described = penstock("topic", "describe", "logs", **at).stdout.splitlines()
        assert [line.split("\t")[:3] for line in described[1:]] == [["0", "0", "2"], ["1", "0", "2500"]]
        with urllib.request.urlopen(f"http://{broker.address('http')}/health") as answer:
            assert json.load(answer).items() >= {"status": "ok", "writable": True, "durability": "synced"}.items()


# -- stopping


@both
def test_what_was_accepted_when_the_broker_was_stopped_is_answered_and_stored(tmp_path: Path, dialect: str) -> None:
    """Several connections send without waiting for replies while the broker is told to stop. Each record names its
    connection and its number, so that what is found after a restart can be held against what was acknowledged."""
    acknowledged: dict[int, list[int]] = {number: [] for number in range(4)}
    flowing = threading.Barrier(5)

    def pipeline(number: int, address: tuple[str, int]) -> None:
        with socket.create_connection(address, 20) as connection:
            replies = connection.makefile("rb")
            sent = done = 0
            try:
                while True:
                    frames = b""
                    for _ in range(16):
                        frames += produce_frame(dialect, number, b"%d:%d" % (number, sent))
                        sent += 1
                    connection.sendall(frames)
                    for _ in range(16 if sent > 64 else 0):  # up to 64 requests stay in flight
                        acknowledged[number].append(base_offset(dialect, replies.read(4), replies.read))
                        done += 1
                        if done == 100:
                            flowing.wait(20)
            except OSError:
                pass  # the broker takes no more; what it answered before may still be there
            except struct.error:
                return  # the close came in place of a reply
            try:
                while header := replies.read(4):
                    acknowledged[number].append(base_offset(dialect, header, replies.read))
            except (OSError, struct.error):
                pass

    with BrokerProcess(tmp_path) as broker:
        address = broker.ready().endpoint("rustlog")
        with Client(*address) as client:
            client.create_topic("t", 4)
        threads = [threading.Thread(target=pipeline, args=(number, address)) for number in range(4)]
        for thread in threads:
            thread.start()
        flowing.wait(20)
        broker.signal(signal.SIGTERM)
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        code, out, err = broker.finish()
        assert (code, err) == (0, "") and "stopped cleanly" in out
    with BrokerProcess(tmp_path) as broker, Client(*broker.ready().endpoint("rustlog")) as client:
        for number, offsets in acknowledged.items():
            assert len(offsets) >= 100 and offsets == list(range(len(offsets)))
            stored = everything(client, "t", number)
            assert stored == [b"%d:%d" % (number, position) for position in range(len(stored))]
            assert len(stored) >= len(offsets), "acknowledged, and lost"


def produce_frame(dialect: str, partition: int, value: bytes) -> bytes:
    if dialect == "binary":
        payload = struct.pack(">BH1sIII", 1, 1, b"t", partition, 1, len(value)) + value
    else:
        text = json.dumps(
            {"type": "Produce", "topic": "t", "partition": partition, "records": [base64.b64encode(value).decode()]}
        )
        payload = text.encode()
    return struct.pack(">I", len(payload)) + payload


def base_offset(dialect: str, header: bytes, read: Callable[[int], bytes]) -> int:
    """The base offset of a reply that must be a good one. struct.error if the stream ends inside it."""
    (length,) = struct.unpack(">I", header)
    payload = read(length)
    if dialect == "binary":
        kind, offset, count = struct.unpack(">BQI", payload)
        assert (kind, count) == (1, 1)
        return int(offset)
    if len(payload) < length:
        raise struct.error
    reply = json.loads(payload)
    assert reply["type"] == "ProduceResponse" and reply["record_count"] == 1
    return int(reply["base_offset"])


def everything(client: Client, topic: str, partition: int) -> list[bytes]:
    found: list[bytes] = []
    while records := client.fetch(topic, partition, len(found)).records:
        found += [record.payload for record in records]
    return found


# -- starting


def test_a_second_start_on_the_same_directory_names_the_holder_and_harms_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, Client(*broker.ready().endpoint("rustlog")) as client:
        client.create_topic("t")
        done = penstock("serve", "--data-dir", str(tmp_path), "--listen", "rustlog=127.0.0.1:0", "--listen", "http=off")
        assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1
        assert f"in use by process {broker.process.pid}" in done.stderr and str(tmp_path) in done.stderr
        address = broker.address("rustlog")
        done = penstock("serve", "--data-dir", str(tmp_path / "other"), "--listen", f"rustlog={address}")
        assert (done.returncode, done.stdout) == (1, "")
        assert f"{address} is taken" in done.stderr and "--listen rustlog=" in done.stderr
        assert client.produce("t", 0, [b"x"]).base_offset == 0


# -- TLS


@both
def test_our_clients_speak_tls_beside_those_that_do_not(tmp_path: Path, dialect: str) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("broker")
    trusting = ssl.create_default_context(cafile=authority.path)
    files = {"PENSTOCK_TLS__CERT": issued.cert, "PENSTOCK_TLS__KEY": issued.key}
    with BrokerProcess(tmp_path / "data", **files) as broker:
        address = broker.ready().endpoint("rustlog")
        assert "on, beside plain text" in broker.block
        large = [bytes([number]) * 100_000 for number in range(50)]  # many TLS records, both ways
        with Client(*address, dialect=dialect, tls=trusting) as client:
            client.create_topic("t")
            client.produce("t", 0, large)
            assert everything(client, "t", 0) == large

        async def asynchronous() -> list[bytes]:
            async with AsyncClient(*address, dialect=dialect, tls=trusting) as client:
                return payloads(await client.fetch("t", 0, 0, 10_000_000))

        assert asyncio.run(asynchronous()) == large
        with Client(*address, dialect=dialect) as plain:
            assert plain.describe_partition("t", 0).high_watermark == 50
        with (
            Client(*address, dialect=dialect, tls=ssl.create_default_context()) as distrusting,
            pytest.raises(Exception, match="certificate verify failed"),
        ):
            distrusting.ping()


# -- retention


def test_old_records_go_and_readers_below_the_start_are_told(tmp_path: Path) -> None:
    small = {
        "PENSTOCK_LOG__FILE_BYTES": "64KiB",
        "PENSTOCK_LOG__ENTRY_BYTES": "64KiB",
        "PENSTOCK_LOG__GROUP_BYTES": "64KiB",
        "PENSTOCK_LIMITS__RECORD_BYTES": "32KiB",
        "PENSTOCK_TOPICS__RETENTION_BYTES": "100000",
    }
    with BrokerProcess(tmp_path, "--durability", "written", **small) as broker:
        address = broker.ready().endpoint("rustlog")
        with Client(*address) as client:
            client.create_topic("t")
            for number in range(100):
                client.produce("t", 0, [b"%03d" % number + bytes(5000)])
            start = log_start_above(client, 0)
            described = client.describe_partition("t", 0)
            assert described.high_watermark == 100 and 0 < start < 100
            with pytest.raises(ClientError) as refused:
                client.fetch("t", 0, 0)
            assert refused.value.code == 416 and refused.value.message == "Offset 0 out of range"
            assert refused.value.details == {"valid_range": {"start": start, "end": 100}, "high_watermark": 100}
            first = client.fetch("t", 0, start, 1).records
            assert [(record.offset, record.payload[:3]) for record in first] == [(start, b"%03d" % start)]
        with Client(*address, dialect="binary") as client:
            assert client.fetch("t", 0, 0) == FetchResponse([], start)
            assert payloads(client.fetch("t", 0, start, 1))[0][:3] == b"%03d" % start
        kill(broker)
    with (
        BrokerProcess(tmp_path, "--durability", "written", **small) as broker,
        Client(*broker.ready().endpoint("rustlog")) as client,
    ):
        described = client.describe_partition("t", 0)
        assert described.log_start_offset is not None and described.log_start_offset >= start
        assert described.high_watermark == 100


def log_start_above(client: Client, offset: int) -> int:
    """The log start, once it has moved above `offset` and stands still: retention runs about once a second."""
    last, end = -1, time.monotonic() + 20
    while True:
        start = client.describe_partition("t", 0).log_start_offset
        assert start is not None and time.monotonic() < end
        if start > offset and start == last:
            return start
        last = start
        time.sleep(1.2)
