"""From options to a log: which combinations are allowed, what is told of others, and that logs are shared."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flight.directories import Directory

from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.flight import connect as connecting
from penstock.flight.connect import connect, disconnect
from penstock.flight.directory import DirectoryLog
from penstock.flight.errors import OptionsUnusable
from penstock.flight.options import BrokerOptions, DirectoryOptions, parse

SERVERS = {"bootstrap.servers": "broker:8815"}
PATH = {"path": "/data"}


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    disconnect()


# -- options


def test_a_data_directory() -> None:
    assert parse(PATH) == DirectoryOptions("/data", DEFAULT_SCOPE)
    assert parse({"path": "file:///data"}) == parse(PATH)
    given = {"Path": "/data", "penstock.Tenant": "acme", "namespace": "eu", "subscribe": "t", "failOnDataLoss": "true"}
    assert parse(given) == DirectoryOptions("/data", Scope("acme", "eu"))
    tables = {"tables.url": "s3://bucket/x", "tables.option.aws_region": "eu", "tables.option.aws_endpoint": "e"}
    storage = (("aws_endpoint", "e"), ("aws_region", "eu"))
    assert parse(PATH | tables) == DirectoryOptions("/data", DEFAULT_SCOPE, "s3://bucket/x", storage)


def test_a_relative_path_is_fixed_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker may be somewhere else."""
    monkeypatch.chdir(tmp_path)
    assert parse({"path": "data"}) == DirectoryOptions(str(tmp_path / "data"), DEFAULT_SCOPE)


def test_a_broker() -> None:
    assert parse(SERVERS) == BrokerOptions((("broker", 8815),), DEFAULT_SCOPE)
    several = parse({"bootstrap.servers": "a, b:1 ,[::1]:2,[::1],10.0.0.1:65535"})
    assert isinstance(several, BrokerOptions)
    assert several.servers == (("a", 8815), ("b", 1), ("::1", 2), ("::1", 8815), ("10.0.0.1", 65535))
    user = parse(SERVERS | {"user": "ann", "password": "secret"})
    assert isinstance(user, BrokerOptions)
    assert (user.user, user.password, user.tls) == ("ann", "secret", False)
    assert "secret" not in repr(user) and "secret" not in f"{user}"
    key = parse(SERVERS | {"api.key": "sesame"})
    assert isinstance(key, BrokerOptions)
    assert key.api_key == "sesame" and "sesame" not in repr(key)


def test_tls() -> None:
    for given, expected in (
        ({"tls.enabled": "true"}, (True, None)),
        ({"tls.enabled": "FALSE"}, (False, None)),
        ({"tls.ca": "/ca.pem"}, (True, "/ca.pem")),
    ):
        options = parse(SERVERS | given)
        assert isinstance(options, BrokerOptions)
        assert (options.tls, options.tls_ca) == expected
    both = parse(SERVERS | {"tls.cert": "c", "tls.key": "k", "tls.hostname": "h"})
    assert isinstance(both, BrokerOptions)
    assert (both.tls, both.tls_cert, both.tls_key, both.tls_hostname) == (True, "c", "k", "h")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "neither is given"),
        (PATH | SERVERS, "not both"),
        ({"path": "  "}, "neither is given"),
        ({"path": "s3://bucket/data"}, "no folder of this machine"),
        (PATH | {"user": "ann"}, "`user` is for a broker"),
        (PATH | {"api.key": "x"}, "`api.key` is for a broker"),
        (PATH | {"tls.ca": "x"}, "`tls.ca` is for a broker"),
        (PATH | {"tenant": "a/b"}, "`tenant` or `namespace`"),
        (PATH | {"tables.option.aws_region": "eu"}, "need `tables.url`"),
        (PATH | {"tables.uri": "x"}, "no option `tables.uri`"),
        (PATH | {"tables.option.": "x"}, "no option `tables.option.`"),
        (SERVERS | {"tables.url": "x"}, "`tables.url` is for `path`"),
        (SERVERS | {"user": "ann"}, "needed together"),
        (SERVERS | {"password": "x"}, "needed together"),
        (SERVERS | {"api.key": "x", "user": "ann", "password": "x"}, "not both"),
        (SERVERS | {"tls.cacert": "x"}, "no option `tls.cacert`; about TLS there are tls.enabled, tls.ca"),
        (SERVERS | {"tls.enabled": "maybe"}, "true or false, not 'maybe'"),
        (SERVERS | {"tls.enabled": "false", "tls.ca": "x"}, "is false, but"),
        (SERVERS | {"tls.cert": "x"}, "needed together"),
        ({"bootstrap.servers": "broker:0"}, "no HOST:PORT"),
        ({"bootstrap.servers": "broker:99999"}, "no HOST:PORT"),
        ({"bootstrap.servers": "grpc://broker:8815"}, "no HOST:PORT"),
        ({"bootstrap.servers": "::1"}, "no HOST:PORT"),
        ({"bootstrap.servers": ","}, "no HOST:PORT"),
    ],
)
def test_what_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionsUnusable) as refused:
        parse(options)
    assert said in str(refused.value)


# -- logs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = Directory(tmp_path / "data")
    directory.create("t", 2)
    directory.stop()
    return tmp_path / "data"


def test_a_log_is_shared_by_all_who_give_the_same_options(root: Path) -> None:
    log = connect({"path": str(root), "subscribe": "t"})
    assert isinstance(log, DirectoryLog)
    assert log.topics() == {"t": 2}
    assert connect({"PATH": str(root), "tenant": "default"}) is log
    other = connect({"path": str(root), "tenant": "other"})
    assert other is not log
    assert other.topics() == {}
    disconnect()
    assert connect({"path": str(root)}) is not log


def test_what_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(OptionsUnusable, match="no Penstock log"):
        connect({"path": str(tmp_path / "data")})
    directory = Directory(tmp_path / "data")
    directory.create("t")
    directory.stop()
    assert connect({"path": str(tmp_path / "data")}).topics() == {"t": 1}


def test_a_fork_does_not_use_what_its_parent_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = connect({"path": str(root)})
    monkeypatch.setattr("penstock.flight.connect.os.getpid", lambda: 1)
    assert connect({"path": str(root)}) is not log


def test_not_more_than_so_many_are_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "KEPT", 2)
    first, second = (connect({"path": str(root), "tenant": name}) for name in ("a", "b"))
    assert connect({"path": str(root), "tenant": "a"}) is first  # asked for last
    connect({"path": str(root), "tenant": "c"})
    assert connect({"path": str(root), "tenant": "a"}) is first
    assert connect({"path": str(root), "tenant": "b"}) is not second


def test_a_broker_is_reached_by_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    client = types.ModuleType("penstock.flight.client")
    client.FlightLog = lambda options: ("client of", options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "penstock.flight.client", client)
    monkeypatch.setattr(connecting, "_logs", {})
    assert connect(SERVERS) == ("client of", parse(SERVERS))  # type: ignore[comparison-overlap]
    monkeypatch.setattr(connecting, "_logs", {})


@pytest.mark.process
def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    """A program that only imports this need not wait for Arrow."""
    code = "import sys, penstock.flight.connect; print(*({'pyarrow', 'deltalake', 'numpy'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"\n"
