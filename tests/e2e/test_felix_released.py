"""The original's own clients, as they are on PyPI: `felix-client` 0.6.2, which offers all flags and features, and
0.5.0, from before offsets and codes. Each runs in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.launcher import BrokerProcess, RestartableBroker, penstock
from tests.ports import steady_udp_port
from tests.released_clients import python_with

DRIVER = str(Path(__file__).parent / "felix_released_driver.py")
VERSIONS = ["0.6.2", "0.5.0"]
SECONDS = 60.0  # a safety net, for whatever is awaited


class Refused(Exception):
    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer["text"])
        self.kind, self.code, self.retry, self.detail = (answer[n] for n in ("error", "code", "retry", "detail"))


class ReleasedClient:
    """A client in a process of its own; `client.publish(stream=…)` and so on are the driver's methods."""

    def __init__(self, version: str, port: int, ca: Path) -> None:
        self.process = subprocess.Popen(
            [python_with(f"felix-client-{version}"), "-I", DRIVER, f"127.0.0.1:{port}", str(ca)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.version() == version

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            print(json.dumps({"call": name, **arguments}), file=self.process.stdin, flush=True)
            answer = json.loads(self.process.stdout.readline())
            if "error" in answer:
                raise Refused(answer)
            return answer["result"]

        return call

    def read(self, number: int, count: int) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        while len(found) < count and (event := self.next(number=number, timeout=SECONDS)) is not None:
            found.append((event[0], event[1]))
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def certificate(data_dir: str, folder: Path) -> Path:
    ca = folder / "ca.pem"
    ca.write_text(penstock("cert", "show", "--pem", "--data-dir", data_dir).stdout)
    return ca


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Path]]:
    folder = tmp_path_factory.mktemp("felix-released")
    with BrokerProcess(folder / "data", "--listen", "felix=127.0.0.1:0") as process:
        process.ready()
        yield process, certificate(str(folder / "data"), folder)


@pytest.fixture(scope="module", params=VERSIONS)
def client(request: pytest.FixtureRequest, broker: tuple[BrokerProcess, Path]) -> Iterator[ReleasedClient]:
    process, ca = broker
    found = ReleasedClient(request.param, process.endpoint("felix")[1], ca)
    yield found
    found.close()


@pytest.fixture
def stream(client: ReleasedClient, request: pytest.FixtureRequest) -> str:
    return f"{request.node.originalname}-{client.version()}".replace(".", "_")


def test_publish_with_and_without_key_in_all_acknowledgement_modes(client: ReleasedClient, stream: str) -> None:
    told, sent = [], []
    for ack in ("per_message", "per_batch", "none"):
        for key in (None, "k", ""):
            sent.append(f"{ack} {key}")
            told.append(client.publish(stream=stream, payload=sent[-1], key=key, ack=ack))
            sent.append(f"behind {ack} {key}")
            told.append(client.publish(stream=stream, payload=sent[-1]))
    events = client.read(client.subscribe(stream=stream, start="earliest"), len(sent))
    assert sorted(text for _, text in events) == sorted(sent)  # unacknowledged ones may go by another QUIC stream
    assert [offset for offset, _ in events] == list(range(len(sent)))
    at = {text: offset for offset, text in events}
    if client.version() == "0.5.0":
        assert set(told) == {None}  # it has no place for them
    else:
        assert told == [None if text.startswith("none") else at[text] for text in sent]


def test_subscribe_from_an_offset(client: ReleasedClient, stream: str) -> None:
    for number in range(5):
        client.publish(stream=stream, payload=str(number))
    assert client.read(client.subscribe(stream=stream, start=3), 2) == [(3, "3"), (4, "4")]
    with pytest.raises(Refused) as refused:
        client.subscribe(stream=stream, start=99)
    assert refused.value.kind == ("FelixError" if client.version() == "0.5.0" else "CursorError")


def test_the_cache_and_its_counters(client: ReleasedClient, stream: str) -> None:
    assert client.cache_get(key=stream) is None
    client.cache_put(key=stream, value="v")
    assert client.cache_get(key=stream) == "v"
    assert client.cache_delete(key=stream) == "v"
    assert client.cache_delete(key=stream) is None
    assert client.counter_get(key=stream) is None
    assert [client.counter_add(key=stream, delta=delta) for delta in (5, -7)] == [5, -2]
    assert client.counter_get(key=stream) == -2


def test_keys_spread_over_partitions_as_the_client_expects(
    client: ReleasedClient, broker: tuple[BrokerProcess, Path], stream: str
) -> None:
    server = "{}:{}".format(*broker[0].endpoint("rustlog"))
    assert penstock("topic", "create", stream, "--partitions", "8", "--server", server).returncode == 0
    assert client.stream_shards(stream=stream) == 8
    keys = {"customer-0": 0, "customer-4": 2, "customer-1": 3, "customer-6": 4, "customer-2": 6}
    for key in keys:
        client.publish(stream=stream, payload=key, key=key)
    client.publish(stream=stream, payload="without")
    found = client.read_all_shards(stream=stream, count=6, timeout=SECONDS)
    assert sorted(found) == sorted([[shard, 0, key] for key, shard in keys.items()] + [[0, 1, "without"]])


def test_a_refusal_is_that_of_its_request_and_in_words_that_are_true(client: ReleasedClient, stream: str) -> None:
    with pytest.raises(Refused) as refused:
        client.cache_put(key="k" * 5000, value="v")  # longer than a key may be
    said = str(refused.value)
    if client.version() != "0.5.0":  # without codes it takes any error for a lost broker, and says so
        assert "another broker" not in said
        assert (refused.value.code, refused.value.retry) == ("invalid_request", "fatal")
    client.publish(stream=stream, payload="after")


@pytest.mark.parametrize("version", VERSIONS)
def test_kill_and_resume_loses_nothing_and_doubles_nothing(version: str, tmp_path: Path) -> None:
    """Events are published and read while the broker is killed twice. What was acknowledged is there once, at the
    offset that was told; the subscriber sees every offset once."""
    port = steady_udp_port()
    with RestartableBroker(str(tmp_path), doors={"felix": f"127.0.0.1:{port}"}) as broker:
        broker.start()
        client = ReleasedClient(version, port, certificate(broker.data_dir, tmp_path))
        try:
            seen: list[tuple[int, str]] = []
            reader = client.subscribe(stream="s", start="earliest")
            client.start_publishing(stream="s")
            for kill in (True, True, False):
                reader = follow(client, reader, seen, len(seen) + 30)
                if kill:
                    broker.kill()
                    broker.start()
            published = client.stop_publishing()
            stored = [(number, offset) for number, offset, error in published if error is None]
            last = stored[-1][0]
            while last not in {text for _, text in seen}:
                reader = follow(client, reader, seen, len(seen) + 1)
        finally:
            client.close()
    assert [offset for offset, _ in seen] == list(range(len(seen)))
    texts = [text for _, text in seen]
    at = {text: offset for offset, text in seen}
    for number, offset in stored:
        assert texts.count(number) == 1
        assert offset == (None if version == "0.5.0" else at[number])


def follow(client: ReleasedClient, reader: int, seen: list[tuple[int, str]], count: int) -> int:
    """Read until there are so many; a subscription that has ended is continued behind its last event."""
    end = time.monotonic() + SECONDS
    while len(seen) < count:
        assert time.monotonic() < end, f"{len(seen)} of {count} events"
        try:
            event = client.next(number=reader, timeout=5.0)
            if event is not None:
                seen.append((event[0], event[1]))
                continue
        except Refused:
            pass
        try:
            reader = client.subscribe(stream="s", start=seen[-1][0] + 1 if seen else "earliest")
        except Refused:
            continue  # it is being started
    return reader
