"""The Felix clients against a broker process: over real QUIC, with real certificates, and over its death."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import textwrap
from collections.abc import Coroutine, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.launcher import BrokerProcess
from tests.ports import steady_udp_port

import penstock.clients.felix
from penstock.clients.felix import (
    AsyncFelixClient,
    AuthenticationFailed,
    CertificateRefused,
    ConnectionFailed,
    CursorError,
    FelixClient,
    Limits,
    OutcomeUnknown,
    ReplyError,
    RetryPolicy,
    SubscriptionEnded,
    Unsendable,
)
from penstock.clients.flymq import Client
from penstock.wire.felix.errors import Advice, ErrorCode, Retry

PATIENT = RetryPolicy(attempts=200, base=0.05, cap=0.1)
MIB = 1 << 20
# The queue, and what may come at once when a lost datagram comes again: all behind it, up to the stream's window.
BOUND = MIB + 16 * MIB


def start(data_dir: Path, place: str = "127.0.0.1:0", **environment: str) -> BrokerProcess:
    return BrokerProcess(data_dir, "--listen", f"felix={place}", **environment).ready()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with start(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


def test_the_examples_of_the_package_work(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    text = penstock.clients.felix.__doc__
    assert text is not None
    first, second = re.findall(r"^ {4}.*\n(?:^ {4}.*\n|^\n(?= {4}))*", text, re.MULTILINE)
    assert "with FelixClient(" in first and "async with AsyncFelixClient(" in second
    exec(textwrap.dedent(first).replace("127.0.0.1:5000", broker.address("felix")))
    assert capsys.readouterr().out.splitlines() == [
        "0 b'the first'",
        "1 b'one'",
        "2 b'batch'",
        "b'hello' 1",
    ]
    names = {"asyncio": asyncio, "AsyncFelixClient": AsyncFelixClient}
    body = textwrap.indent(textwrap.dedent(second), "    ").replace("127.0.0.1:5000", broker.address("felix"))
    exec(f"async def main():\n{body}\nasyncio.run(main())", names)
    assert re.fullmatch(r"3 \d+\n", capsys.readouterr().out)


def test_a_legal_publish_that_is_too_large_for_the_other_dialect_is_missing_there_and_nothing_else_is(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """13 MiB fit a frame in binary, and not in Base64."""

    async def main() -> None:
        address, stream = broker.address("felix"), "thirteen"
        async with (
            AsyncFelixClient(address, insecure=True) as original,
            AsyncFelixClient(address, insecure=True, dialect="document") as document,
            original.subscribe(stream) as everything,
            document.subscribe(stream) as most,
        ):
            await original.publish(stream, b"before")
            await original.publish(stream, bytes(13 * MIB))
            await original.publish(stream, b"behind")
            found = [await everything.next(30) for _ in range(3)]
            assert [(event.offset, len(event.payload)) for event in found if event] == [(0, 6), (1, 13 * MIB), (2, 6)]
            assert [event.payload for event in [await most.next(30), await most.next(30)] if event] == [
                b"before",
                b"behind",
            ]

    run(main())
    assert f"an event is missing: the record at offset 1 has {13 * MIB} bytes" in caplog.text


@pytest.mark.parametrize("dialect", ["original", "document"])
def test_both_dialects_do_it_all(broker: BrokerProcess, dialect: str) -> None:
    async def main() -> None:
        async with AsyncFelixClient(broker.address("felix"), insecure=True, dialect=dialect) as client:  # type: ignore[arg-type]
            async with client.subscribe(f"all-{dialect}") as events:
                await client.publish(f"all-{dialect}", b"0")
                await client.publish_many(f"all-{dialect}", [b"1", b"2"])
                assert await client.publish_batches(f"all-{dialect}", [[b"3"], [b"4", b"5"]]) == 2
                await client.publish_nowait(f"all-{dialect}", b"6", b"7")
                found = [await anext(events) for _ in range(8)]
                assert [event.payload for event in found] == [b"%d" % number for number in range(8)]
                told = list(range(8)) if dialect == "original" else [None] * 8
                assert [event.offset for event in found] == told
            cache = client.cache("sessions", namespace=dialect)
            await cache.put("key", b"value", ttl_ms=60_000)
            assert await cache.get("key") == b"value"
            assert (await cache.compare_and_set("key", b"value", b"5")).stored
            assert not (await cache.compare_and_set("key", b"value", b"6")).stored
            assert await cache.increment("key", 2) == 7
            assert await cache.delete("key")
            assert not await cache.delete("key")
            assert await cache.get("key") is None

    run(main())


def test_json_instead_of_binary(broker: BrokerProcess) -> None:
    with FelixClient(broker.address("felix"), insecure=True, encoding="json") as client:
        client.publish("json", b"0")
        client.publish_many("json", [b"1", b"2"])
        with client.subscribe("json", "earliest") as events:
            assert [event.payload for event in islice(events, 3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("encoding", ["binary", "json"])
def test_keys_are_stored_and_offsets_and_advice_are_told(broker: BrokerProcess, encoding: Any) -> None:
    topic = f"keyed-{encoding}"
    with Client(*broker.endpoint("flymq")) as other:
        other.create_topic(topic, 8)
    with FelixClient(broker.address("felix"), insecure=True, encoding=encoding) as client:
        assert [client.publish(topic, b"x", key=b"customer-1") for _ in range(2)] == [0, 1]
        assert client.publish_many(topic, [b"a", b"b"], key=b"customer-2") == 0
        assert client.publish(topic, b"no key") == 0
        with client.subscribe(f"{topic}#3", start=0) as events:  # that of the key
            assert list(islice(events, 2)) == [(b"x", 0), (b"x", 1)]
        with pytest.raises(Unsendable, match="a key of 65536 bytes; the most is 65535"):
            client.publish(topic, b"x", key=bytes(65536))
        with pytest.raises(ReplyError) as refused:
            client.publish(f"{topic}#99", b"x")
        assert refused.value.advice == Advice(ErrorCode.INVALID_REQUEST, Retry.FATAL)


def test_a_subscription_begins_with_the_event_whose_offset_it_names(broker: BrokerProcess) -> None:
    with FelixClient(broker.address("felix"), insecure=True) as client:
        for number in range(4):
            client.publish("middle", b"%d" % number)
        with client.subscribe("middle", 1) as events:
            assert [event.payload for event in islice(events, 2)] == [b"1", b"2"]


def test_offsets_that_are_not_there(broker: BrokerProcess) -> None:
    with FelixClient(broker.address("felix"), insecure=True) as client:
        client.publish("short", b"0")
        with pytest.raises(CursorError, match="the stream ends at 1"), client.subscribe("short", 2):
            pass


def test_who_the_server_is(broker: BrokerProcess) -> None:
    place = broker.address("felix")
    found = re.search(r"sha256:([0-9a-f]{64})", broker.block)
    assert found is not None
    with FelixClient(place, fingerprint=f"sha256:{found[1]}") as client:
        client.connect()
    data = re.search(r"^  data +(\S+)$", broker.block, re.MULTILINE)
    assert data is not None
    with FelixClient(place, ca=str(Path(data[1]) / "certificates" / "felix.crt")) as client:
        client.connect()
    with FelixClient(place, fingerprint="00" * 32) as client, pytest.raises(CertificateRefused, match="fingerprint"):
        client.connect()


def test_nobody_is_there() -> None:
    retry = RetryPolicy(attempts=2, base=0.0)
    with (
        FelixClient("127.0.0.1:9", insecure=True, retry=retry, timeout=5) as client,
        pytest.raises(ConnectionFailed, match=r"No connection to 127\.0\.0\.1:9"),
    ):
        client.connect()


def test_who_has_no_token_is_not_let_in(tmp_path: Path) -> None:
    with start(tmp_path / "data", PENSTOCK_SECURITY__MODE="on") as broker:
        for token in (None, "nonsense"):
            with (
                FelixClient(broker.address("felix"), insecure=True, token=token) as client,
                pytest.raises(AuthenticationFailed, match="auth failed"),
            ):
                client.publish("visits", b"x")


def test_a_slow_reader_holds_a_bounded_amount_and_loses_nothing(broker: BrokerProcess) -> None:
    async def main() -> None:
        limits = Limits(queue=MIB)
        async with AsyncFelixClient(broker.address("felix"), insecure=True, limits=limits) as client:
            async with client.subscribe("slow") as slow, client.subscribe("slow") as quick:
                seen = 0
                for number in range(150):
                    payloads = [b"%08d" % (number * 64 + at) + bytes(2040) for at in range(64)]
                    await client.publish_many("slow", payloads)
                    while seen < (number + 1) * 64:
                        batch = await quick.next_batch()
                        assert batch is not None
                        seen += len(batch.payloads)
                buffer = slow._buffer
                assert buffer is not None and buffer.over is not None  # it does not stand in the way of the other
                held = sum(map(len, [payload for batch in buffer._batches for payload in batch.payloads]))
                assert held < BOUND
                next_offset = 0
                async for batch in slow.batches():
                    assert batch.offset == next_offset
                    assert [int(payload[:8]) for payload in batch.payloads] == list(
                        range(next_offset, next_offset + len(batch.payloads))
                    )
                    next_offset += len(batch.payloads)
                    if next_offset == 150 * 64:
                        break
            async with client.subscribe("slow", "earliest") as lonely:
                count = 0
                await asyncio.sleep(0.2)
                # On a busy machine the events may fill the buffer before the reply to Subscribe says whose they are:
                # then they are cancelled, and requested again when those that came are taken.
                while lonely._buffer is None or lonely._buffer.over is not None:
                    batch = await lonely.next_batch()
                    assert batch is not None
                    count += len(batch.payloads)
                await asyncio.sleep(0.2)
                assert lonely._buffer.over is None
                assert lonely._buffer._size < BOUND  # the connection stands still
                async for batch in lonely.batches():
                    count += len(batch.payloads)
                    if count == 150 * 64:
                        break

    run(main())


def test_a_stream_that_is_deleted_ends_its_subscriptions(broker: BrokerProcess) -> None:
    async def main() -> None:
        client = AsyncFelixClient(broker.address("felix"), insecure=True)
        async with client, client.subscribe("doomed") as events:
            await client.publish("doomed", b"0")
            assert await events.next() is not None
            with Client(*broker.endpoint("flymq")) as other:
                other.delete_topic("doomed")
            with pytest.raises(SubscriptionEnded):
                await events.next(timeout=10)

    run(main())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_nothing_is_lost_or_comes_twice_when_the_broker_dies_and_comes_back(
    tmp_path: Path, how: signal.Signals
) -> None:
    async def main() -> None:
        place = f"127.0.0.1:{steady_udp_port()}"
        with start(tmp_path / "data", place) as first, contextlib.ExitStack() as brokers:
            client = AsyncFelixClient(place, insecure=True, retry=PATIENT, idle=1.0, timeout=5.0)
            async with client, client.subscribe("visits") as events, client.subscribe("quiet") as quiet:
                stored: list[bytes] = []
                doubtful: set[bytes] = set()
                found: list[tuple[int, bytes]] = []

                async def publish() -> None:
                    for number in range(100):
                        payload = b"%d" % number
                        try:
                            await client.publish("visits", payload)
                            stored.append(payload)
                        except OutcomeUnknown:
                            doubtful.add(payload)
                        await asyncio.sleep(0.005)
                    await client.publish("visits", b"end")

                async def read() -> None:
                    async for event in events:
                        assert event.offset is not None
                        found.append((event.offset, event.payload))
                        if event.payload == b"end":
                            break

                work = asyncio.gather(publish(), read())
                while len(found) < 30:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                first.signal(how)
                await asyncio.to_thread(first.process.wait)
                brokers.enter_context(await asyncio.to_thread(start, tmp_path / "data", place))
                await work
                await client.publish("quiet", b"0")
                event = await quiet.next(timeout=20)  # had no event before its connection was lost
                assert event is not None and event.payload == b"0"
                assert [offset for offset, _ in found] == list(range(len(found)))
                assert len({payload for _, payload in found}) == len(found)
                missing = set(stored) - {payload for _, payload in found}
                assert not missing
                assert {payload for _, payload in found} <= {*stored, *doubtful, b"end"}

    run(main())


def test_close_sends_what_was_published_without_acknowledgement(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with AsyncFelixClient(broker.address("felix"), insecure=True) as client:
            for number in range(200):
                await client.publish_nowait("unacked", *[b"%d" % number + bytes(1000)] * 20)
        async with AsyncFelixClient(broker.address("felix"), insecure=True) as client:
            found: list[bytes] = []
            async with client.subscribe("unacked", "earliest") as events:
                async for batch in events.batches():
                    found += batch.payloads
                    if len(found) >= 4000:
                        break
            assert sorted(found) == sorted([b"%d" % number + bytes(1000) for number in range(200)] * 20)

    run(main())
