"""The broker and the login that a command uses: flags, environment, contexts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from tests.launcher import BrokerProcess, penstock

from penstock.cli import contexts
from penstock.cli.context import add, use
from penstock.cli.contexts import Context
from penstock.cli.target import DEFAULT_SERVER, TargetFlags, resolve

VARIABLES = ("SERVER", "CONTEXT", "USER", "PASSWORD_FILE", "KEY_FILE", "TOKEN_FILE", "TLS", "TLS_CA")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in VARIABLES:
        monkeypatch.delenv(f"PENSTOCK_{name}", raising=False)
    return tmp_path


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text("s3cret\nsecond line\n")
    return str(path)


def test_without_anything_it_is_this_machine() -> None:
    target = resolve(TargetFlags())
    assert str(target.endpoint) == DEFAULT_SERVER
    assert (target.user, target.password, target.key, target.token, target.tls) == (None,) * 5


def test_flags_are_stronger_than_the_environment_and_that_than_the_context(
    monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    add("prod", server="prod:1", tenant="t", key_file=secret, use=True)
    assert str(resolve(TargetFlags()).endpoint) == "prod:1"
    assert resolve(TargetFlags()).key == "s3cret" and resolve(TargetFlags()).tenant == "t"
    monkeypatch.setenv("PENSTOCK_SERVER", "environment:2")
    assert str(resolve(TargetFlags()).endpoint) == "environment:2"
    assert str(resolve(TargetFlags(server="flag:3")).endpoint) == "flag:3"


def test_another_server_is_not_shown_the_secrets_of_the_context_in_use(secret: str) -> None:
    add("prod", server="prod:1", key_file=secret, use=True)
    assert resolve(TargetFlags(server="other:1")).key is None


def test_another_login_replaces_that_of_the_context(secret: str) -> None:
    add("prod", server="prod:1", key_file=secret, use=True)
    target = resolve(TargetFlags(user="ada", password_file=secret))
    assert (str(target.endpoint), target.user, target.password, target.key) == ("prod:1", "ada", "s3cret", None)


def test_a_context_is_named_by_flag_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    add("prod", server="prod:1", use=True)
    add("test", server="test:1")
    assert str(resolve(TargetFlags(context="test")).endpoint) == "test:1"
    monkeypatch.setenv("PENSTOCK_CONTEXT", "test")
    assert str(resolve(TargetFlags()).endpoint) == "test:1"
    use("test")
    monkeypatch.delenv("PENSTOCK_CONTEXT")
    assert str(resolve(TargetFlags()).endpoint) == "test:1"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (TargetFlags(server="nonsense"), "--server nonsense"),
        (TargetFlags(context="nowhere"), "there is no context 'nowhere'"),
        (TargetFlags(password_file="x"), "--password-file needs --user"),
        (TargetFlags(key_file="x", token_file="y"), "--key-file and --token-file"),
        (TargetFlags(key_file="/nowhere"), "/nowhere: No such file"),
        (TargetFlags(tls_ca="/nowhere"), "--tls-ca /nowhere"),
    ],
)
def test_mistakes_end_the_command(flags: TargetFlags, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        resolve(flags)
    assert said in capsys.readouterr().err


def test_an_empty_secret_is_no_secret(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "empty").write_text("\n")
    with pytest.raises(typer.Exit):
        resolve(TargetFlags(key_file=str(home / "empty")))
    assert "its first line is empty" in capsys.readouterr().err


def test_the_file_of_contexts_is_the_users_own(home: Path) -> None:
    add("prod", server="prod:1")
    file = home / "penstock" / "contexts.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert contexts.load().contexts == {"prod": Context(server="prod:1")}


def test_a_broken_file_of_contexts_is_told_with_its_place(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "penstock").mkdir()
    (home / "penstock" / "contexts.json").write_text("{")
    with pytest.raises(typer.Exit):
        resolve(TargetFlags())
    assert "contexts.json" in capsys.readouterr().err


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a broker that runs, with security on."""
    data = tmp_path_factory.mktemp("target") / "data"
    with BrokerProcess(data, "--durability", "written", PENSTOCK_SECURITY__MODE="on") as broker:
        broker.ready()
        penstock("topic", "create", "by-directory", "--data-dir", str(data))
        yield data


BY_DIRECTORY = (
    ("topic", "create", "by-directory"),
    ("topic", "set", "by-directory", "--retention", "1d"),
    ("topic", "list"),
    ("group", "list"),
    ("users", "list"),
    ("cache", "list"),
    ("status",),
)


@pytest.mark.parametrize("command", BY_DIRECTORY, ids=" ".join)
def test_a_data_directory_names_the_broker_that_runs_there_for_every_command(
    running: Path, command: tuple[str, ...]
) -> None:
    flag = penstock(*command, "--data-dir", str(running))
    assert flag.returncode == 0 or "already" in flag.stderr, flag
    environment = penstock(*command, PENSTOCK_DATA_DIR=str(running))
    assert environment.returncode == 0 or "already" in environment.stderr, environment


def test_records_go_through_a_door_which_wants_a_login(running: Path, tmp_path: Path) -> None:
    penstock("topic", "create", "doors", "--data-dir", str(running))
    done = penstock("produce", "doors", "x", "--data-dir", str(running))
    assert done.returncode == 1 and "--user, --key-file or --token-file" in done.stderr
    key = penstock("keys", "add", "writer", "--role", "admin", "--data-dir", str(running)).stdout
    (tmp_path / "key").write_text(key)
    login = ("--data-dir", str(running), "--key-file", str(tmp_path / "key"))
    assert penstock("produce", "doors", "x", *login).stdout == "doors/0: offset 0\n"
    assert "doors" in penstock("topic", "list", *login).stdout  # over the network, as the one who logs in


def test_a_directory_where_no_broker_runs_is_told(tmp_path: Path) -> None:
    for command in (("topic", "list"), ("produce", "t", "x"), ("status",)):
        (tmp_path / "d").mkdir(exist_ok=True)
        done = penstock(*command, "--data-dir", str(tmp_path / "d"))
        assert done.returncode == 1 and f"no broker runs in {tmp_path / 'd'}" in done.stderr, done


def test_an_address_and_a_directory_exclude_each_other(tmp_path: Path) -> None:
    for command in (("topic", "list"), ("users", "list")):
        done = penstock(*command, "--data-dir", str(tmp_path), "--server", "127.0.0.1:1")
        assert done.returncode == 2 and "choose one" in done.stderr
