"""A Kafka node that wants a password, over plain connections and over TLS, and where the password is not to be seen."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kafka.brokers import Broker
from tests.kafka.kraft import Cluster
from tests.launcher import BrokerProcess, penstock
from tests.ports import steady_port
from tests.transport.certificates import Authority

pytestmark = pytest.mark.process

PASSWORD = "correct-horse-battery"
LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_penstock="{PASSWORD}";'
ONE_NODE = "replication=1&min_insync=1&allow_unsafe=true"


class Secured:
    """One node with two more listeners, and the files that a client needs."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.sasl, self.tls = directory, steady_port(), steady_port()
        self.authority = Authority(directory)
        issued = self.authority.issue("node")
        (directory / "node.pem").write_bytes(Path(issued.key).read_bytes() + Path(issued.cert).read_bytes())
        (directory / "password").write_text(f"{PASSWORD}\n")
        (directory / "wrong").write_text("mule\n")
        places = f"PLAINTEXT://127.0.0.1:{{port}},SASL://127.0.0.1:{self.sasl},TLS://127.0.0.1:{self.tls}"
        self.cluster = Cluster(
            directory / "kafka",
            1,
            more="\n".join(
                (
                    f"listeners={places},CONTROLLER://127.0.0.1:{{controller}}",
                    f"advertised.listeners={places}",
                    "inter.broker.listener.name=PLAINTEXT",
                    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SASL_SSL",
                    "sasl.enabled.mechanisms=PLAIN",
                    f"listener.name.sasl.plain.sasl.jaas.config={LOGIN}",
                    f"listener.name.tls.plain.sasl.jaas.config={LOGIN}",
                    "listener.name.tls.ssl.keystore.type=PEM",
                    f"listener.name.tls.ssl.keystore.location={directory / 'node.pem'}",
                )
            ),
        )

    def url(self, name: str, *, tls: bool, password: str = "password") -> str:
        port, protocol = (self.tls, "SASL_SSL") if tls else (self.sasl, "SASL_PLAINTEXT")
        login = f"sasl.mechanism=PLAIN&sasl.username=penstock&sasl.password.file={self.directory / password}"
        trust = f"&ssl.ca.location={self.authority.path}" if tls else ""
        return f"kafka://127.0.0.1:{port}/{name}?{ONE_NODE}&security.protocol={protocol}&{login}{trust}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    node = Secured(tmp_path_factory.mktemp("secured"))
    with node.cluster:
        yield node


@pytest.mark.parametrize("tls", [False, True], ids=["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_journal_behind_a_login(secured: Secured, tmp_path: Path, tls: bool) -> None:
    url = secured.url(f"test-{'tls' if tls else 'sasl'}", tls=tls)
    broker = Broker(tmp_path, "a", url).start()
    try:
        broker.ready().write("first")
        assert broker.values() == ["first"]
        bundle = tmp_path / "bundle.tar.gz"
        directory = ("--data-dir", str(tmp_path / "a"))
        assert penstock("debug", "bundle", "--file", str(bundle), *directory).returncode == 0
        with tarfile.open(bundle) as archive:
            parts = {each.name: archive.extractfile(each) for each in archive.getmembers()}
            texts = {name: part.read().decode(errors="replace") for name, part in parts.items() if part is not None}
        assert any("sasl.username=penstock" in text for text in texts.values()), "it tells how it is connected"
        shown = [*texts.values(), *broker.lines, penstock("config", "--storage", url).stdout]
        assert not any(PASSWORD in text for text in shown)
    finally:
        broker.kill()
    broker.start().ready()
    assert broker.values() == ["first"]
    broker.kill()


@pytest.mark.parametrize("tls", [False, True], ids=["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_login_that_is_refused(secured: Secured, tmp_path: Path, tls: bool) -> None:
    url = secured.url("refused", tls=tls, password="wrong")
    with BrokerProcess(tmp_path / "a", "--storage", url, PENSTOCK_TABLES__URL=str(tmp_path / "tables")) as broker:
        code, _, errors = broker.finish(90)
    assert code == 1
    assert "Authentication failed" in errors
    assert "mule" not in errors


def test_an_authority_that_is_not_trusted(secured: Secured, tmp_path: Path) -> None:
    other = Authority(tmp_path, "another authority")
    url = secured.url("refused", tls=True).replace(secured.authority.path, other.path)
    with BrokerProcess(tmp_path / "a", "--storage", url, PENSTOCK_TABLES__URL=str(tmp_path / "tables")) as broker:
        code, _, errors = broker.finish(90)
    assert code == 1
    assert "certificate verify failed" in errors
