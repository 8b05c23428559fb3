"""`penstock mirror` between two brokers, through every door, and through kills of all three."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.launcher import COMMAND, WITHOUT_SETTINGS, BrokerProcess, Done, RestartableBroker, penstock
from tests.ports import steady_port

import penstock as api
from penstock.clients import blipmq, kimberlite, rustlog

RECORDS = 1200


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """A source with topics `plain`, of one partition, and `wide`, of three with keys and headers; and a destination."""
    home = tmp_path_factory.mktemp("mirror")
    flags = ("--durability", "written", "--listen", "felix=127.0.0.1:0")
    with BrokerProcess(home / "a", *flags) as first, BrokerProcess(home / "b", *flags) as second:
        first.ready()
        second.ready()
        with api.connect(first.address("rustlog")) as db:
            db.admin.topics.create("plain")
            db.produce_many("plain", [b"%d" % number for number in range(RECORDS)])
            db.admin.topics.create("wide", partitions=3)
            for number in range(3):
                values = [b"%d" % each for each in range(number, 900, 3)]
                keys = [b"k" + value for value in values]
                headers = [{"n": value} for value in values]
                db.produce_many("wide", values, keys=keys, headers=headers, partition=number)
        yield first, second


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def url(scheme: str, broker: BrokerProcess) -> str:
    if scheme == "felix":
        return f"felix://{broker.address('felix')}?insecure=1"
    return f"{scheme}://{broker.address('rustlog')}"


def mirror(brokers: tuple[BrokerProcess, BrokerProcess], of: str, to: str, *arguments: str) -> Done:
    done = penstock("mirror", url(of, brokers[0]), url(to, brokers[1]), *arguments)
    assert done.returncode == 0, done
    return done


def stored(address: str, topic: str) -> list[tuple[int, bytes | None, bytes, tuple[tuple[str, bytes], ...]]]:
    with api.connect(address) as db, db.consume(topic, follow=False) as consumer:
        return sorted(
            ((each.partition, each.key, each.value, each.headers) for each in consumer),
            key=lambda each: (each[0], int(each[2])),
        )


PAIRS = [(of, to) for of in ("penstock", "rustlog", "flymq") for to in ("penstock", "rustlog", "flymq", "blipmq")]


@pytest.mark.parametrize(("of", "to"), [*PAIRS, ("penstock", "felix"), ("felix", "penstock")])
def test_every_record_arrives_once_and_in_order_and_a_second_run_finds_nothing_left(
    brokers: tuple[BrokerProcess, BrokerProcess], of: str, to: str
) -> None:
    target = f"{of}-{to}"
    done = mirror(brokers, of, to, "--topic", f"plain={target}")
    assert f"plain → {target}: {RECORDS} record(s)" in done.stdout
    with rustlog.Client(*brokers[1].endpoint("rustlog")) as client:
        found: list[bytes] = []
        while records := client.fetch(target, 0, len(found), 1 << 20).records:
            found += [record.payload for record in records]
    assert found == [b"%d" % number for number in range(RECORDS)]
    assert f"plain → {target}: 0 record(s)" in mirror(brokers, of, to, "--topic", f"plain={target}").stdout
    assert ("delivered twice" in done.stderr) is (to in ("felix", "blipmq"))


def test_streams_of_kimberlite_both_ways(brokers: tuple[BrokerProcess, BrokerProcess]) -> None:
    mirror(brokers, "penstock", "kimberlite", "--topic", "plain=there")
    host, port = brokers[1].endpoint("rustlog")
    with kimberlite.KimberliteClient(f"{host}:{port}") as client:
        stream = client.create_stream("there")
        assert list(client.read(stream)) == [b"%d" % number for number in range(RECORDS)]
    back = penstock(
        *("mirror", url("kimberlite", brokers[1]), url("penstock", brokers[0]), "--topic", f"{stream}=back")
    )
    assert back.returncode == 0 and f"{stream} → back: {RECORDS} record(s)" in back.stdout
    assert [each[2] for each in stored(brokers[0].address("rustlog"), "back")] == [b"%d" % n for n in range(RECORDS)]


def test_keys_headers_and_partitions_stay_and_what_is_lost_is_told(
    brokers: tuple[BrokerProcess, BrokerProcess],
) -> None:
    done = mirror(brokers, "penstock", "penstock", "--topic", "wi*", "--prefix", "copy-")
    assert "does not carry" not in done.stderr
    there = brokers[1].address("rustlog")
    assert stored(there, "copy-wide") == stored(brokers[0].address("rustlog"), "wide")
    told = mirror(brokers, "penstock", "flymq", "--topic", "wide", "--prefix", "flymq-").stderr
    assert "flymq:// does not carry headers: left out" in told
    assert [each[:3] for each in stored(there, "flymq-wide")] == [each[:3] for each in stored(there, "copy-wide")]
    told = mirror(brokers, "penstock", "rustlog", "--topic", "wide", "--prefix", "rustlog-").stderr
    assert "rustlog:// does not carry keys and headers: left out" in told


def test_all_topics_but_those_of_progress(brokers: tuple[BrokerProcess, BrokerProcess]) -> None:
    told = penstock("mirror", url("penstock", brokers[1]), url("penstock", brokers[0]), "--prefix", "all-", "-t", "*")
    assert told.returncode == 0 and "→ all-" in told.stdout and "-mirror-" not in told.stdout


def test_where_a_new_mirror_begins(brokers: tuple[BrokerProcess, BrokerProcess]) -> None:
    for of, place, count in (
        ("penstock", "1190", 10), ("rustlog", "1190", 10), ("penstock", "latest", 0), ("felix", "1190", 10),
        ("penstock", "@-1h", RECORDS), ("rustlog", "@-1h", RECORDS), ("flymq", "@-1h", RECORDS),
    ):  # fmt: skip
        target = f"from-{of}-{place.strip('@')}"
        assert (
            f": {count} record(s)" in mirror(brokers, of, "penstock", "-t", f"plain={target}", "--from", place).stdout
        )


def test_what_a_subscription_gets_is_acknowledged_when_it_is_stored(
    brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    arguments = ("-t", "pushed", "--state", str(tmp_path / "state"))
    mirror(brokers, "blipmq", "penstock", *arguments)  # from now on
    with blipmq.Client(*brokers[0].endpoint("rustlog"), key="any") as client:
        client.publish_many("pushed", [b"%d" % number for number in range(200)])
        client.flush()
    assert "200 record(s)" in mirror(brokers, "blipmq", "penstock", *arguments).stdout
    assert "0 record(s)" in mirror(brokers, "blipmq", "penstock", *arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("amqp://a:1", "penstock://b:1"), 2, "amqp:// is not supported; the schemes are penstock://, rustlog://"),
        (("penstock://a:1", "nonsense"), 2, "expected a URL"),
        (("penstock://u:p@a:1", "penstock://b:1"), 2, "must not contain a password"),
        (("penstock://u@a:1", "penstock://b:1"), 2, "needs a password"),
        (("penstock://a:1?x=1", "penstock://b:1"), 2, "unknown option 'x'"),
        (("felix://a:1", "penstock://b:1"), 1, "say whom to trust"),
        (("kimberlite://a:1", "penstock://b:1"), 2, "cannot list its topics"),
        (("blipmq://a:1", "penstock://b:1", "--from", "7"), 2, "has no past"),
    ],
)
def test_what_cannot_be_is_told(arguments: tuple[str, ...], code: int, said: str) -> None:
    done = penstock("mirror", *arguments)
    assert done.returncode == code and said in done.stderr, done


def test_a_broker_is_not_mirrored_onto_itself(brokers: tuple[BrokerProcess, BrokerProcess]) -> None:
    here = url("penstock", brokers[0])
    done = penstock("mirror", here, here, "--topic", "plain")
    assert done.returncode == 2 and "--prefix" in done.stderr


@pytest.mark.parametrize("scheme", ["penstock", "rustlog", "flymq", "kimberlite"])
def test_it_survives_kills_of_itself_and_of_either_broker(scheme: str, tmp_path: Path) -> None:
    """Records go on coming; each arrives exactly once."""
    port = {name: f"127.0.0.1:{steady_port()}" for name in ("a", "b")}
    with (
        RestartableBroker(_made(tmp_path / "a"), doors=_doors(port["a"])) as first,
        RestartableBroker(_made(tmp_path / "b"), doors=_doors(port["b"])) as second,
    ):
        first.start()
        second.start()
        of, to = ("penstock", scheme)
        command = [
            *COMMAND, "mirror", f"{of}://{port['a']}", f"{to}://{port['b']}", "-t", "events", "--follow",
        ]  # fmt: skip
        environment = WITHOUT_SETTINGS | {"XDG_STATE_HOME": str(tmp_path)}
        produced = 0
        with api.connect(port["a"]) as db, open(tmp_path / "told", "w") as told:
            db.admin.topics.create("events")
            for victim in ("mirror", "destination", "source"):
                with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=told) as process:
                    db.produce_many("events", [b"%d" % each for each in range(produced, produced + 3000)])
                    produced += 3000
                    _until_more(port["b"], scheme, produced - 2900)
                    if victim != "mirror":
                        broker = second if victim == "destination" else first
                        broker.kill()
                        broker.start()
                        _until_more(port["b"], scheme, produced)
                    process.kill()
        assert "Traceback" not in (tmp_path / "told").read_text()
        done = penstock(*command[len(COMMAND) : -1])
        assert done.returncode == 0, done
        assert _found(port["b"], scheme) == [b"%d" % each for each in range(produced)]


def _made(path: Path) -> str:
    path.mkdir()
    return str(path)


def _doors(address: str) -> dict[str, str]:
    return dict.fromkeys(("rustlog", "flymq", "kimberlite", "http"), address)


def _found(address: str, scheme: str) -> list[bytes]:
    if scheme == "kimberlite":
        with kimberlite.KimberliteClient(address) as client:
            return list(client.read(client.create_stream("events")))
    with api.connect(address) as db, db.consume("events", follow=False) as consumer:
        return [record.value for record in consumer]


def _until_more(address: str, scheme: str, count: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if len(_found(address, scheme)) >= count:
                return
        except api.PenstockError:
            pass  # it is not there yet
        time.sleep(0.05)
    raise AssertionError(f"fewer than {count} records came")


def test_ctrl_c_ends_it(brokers: tuple[BrokerProcess, BrokerProcess]) -> None:
    command = [
        *COMMAND, "mirror", url("penstock", brokers[0]), url("penstock", brokers[1]), "-t", "plain=ctrl", "--follow",
    ]  # fmt: skip
    process = subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _until_topic(brokers[1].address("rustlog"), "ctrl")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130 and b"Traceback" not in told


def _until_topic(address: str, topic: str) -> None:
    end = time.monotonic() + 60
    with api.connect(address) as db:
        while time.monotonic() < end and not db.admin.topics.list(topic):
            time.sleep(0.05)
