"""The configuration's layers, their order, and how they refuse what is wrong."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

import msgspec
import pytest

from penstock.broker.cache.cache_store import CachePolicy
from penstock.config.layers import FLAG_OF, keys, load, to_toml
from penstock.config.settings import DOOR_NAMES, CacheSection, ConfigError, LogSection, Settings
from penstock.log.engine import Durability
from penstock.log.file_engine import LogSettings
from penstock.transport.endpoint import Endpoint, parse_endpoint


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "penstock.toml"
    path.write_text(text)
    return str(path)


def test_without_anything_the_defaults_hold() -> None:
    config = load()
    assert config.settings == Settings()
    assert config.settings.data_dir == "./data"
    assert config.settings.log.durability is Durability.SYNCED
    assert config.settings.listen.rustlog == config.settings.listen.flymq == "127.0.0.1:9092"
    assert config.settings.topics.auto_create_topics is True
    assert config.origin("data_dir") == "default"


def test_every_setting_of_the_log_can_be_configured_and_has_the_logs_default() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(LogSettings)}
    assert {name: getattr(LogSection(), name) for name in LogSection.__struct_fields__} == fields


def test_every_setting_of_caches_can_be_configured_and_has_their_default() -> None:
    assert dataclasses.asdict(CachePolicy()) == msgspec.structs.asdict(CacheSection())


def test_a_flag_is_stronger_than_a_variable_and_a_variable_than_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, 'data_dir = "/a"\n[log]\ndurability = "memory"\nfile_bytes = "1MiB"\n')
    environment = {"PENSTOCK_LOG__DURABILITY": "written", "PENSTOCK_DATA_DIR": "/b", "HOME": "/root"}
    config = load(file=file, environment=environment, flags={"data_dir": "/c"})
    assert config.settings.data_dir == "/c"
    assert config.settings.log.durability is Durability.WRITTEN
    assert config.settings.log.file_bytes == 1 << 20
    assert config.origin("data_dir") == "--data-dir"
    assert config.origin("log.durability") == "PENSTOCK_LOG__DURABILITY"
    assert config.origin("log.file_bytes") == file
    assert config.origin("log.tail_bytes") == "default"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour = 1", "there is no key `colour`"),
        ("[log]\ndurabilty = 'synced'", "there is no key `log.durabilty`; did you mean `log.durability`?"),
        ("[listen]\nkafka = '127.0.0.1:1'", "there is no key `listen.kafka`"),
        ("log = 3", "`log` is a section"),
        ("[log]\ndurability = 'soon'", "`log.durability`: Invalid enum value 'soon'"),
        ("[log]\nfile_bytes = true", "`log.file_bytes`: Expected a whole number"),
        ("[log]\nfile_bytes = '12 parsecs'", "`log.file_bytes`: expected a number, or a number with one of"),
        ("[log]\nfile_bytes = 1", "`log.file_bytes`: Expected a whole number >= 65536"),
        ("[log]\nroll_seconds = '-1d'", "`log.roll_seconds`: expected a number"),
        ("[limits]\nconnections = 0", "`limits.connections`: Expected a whole number >= 1"),
        ("[limits]\nidle_seconds = 'never'", "`limits.idle_seconds`: expected a number"),
        ("[listen]\nrustlog = '127.0.0.1'", "`listen.rustlog`: expected HOST:PORT"),
        ("[listen]\nrustlog = '127.0.0.1:65536'", "`listen.rustlog`: expected HOST:PORT"),
        ("[listen]\nrustlog = '::1:9092'", "`listen.rustlog`: an IPv6 address needs brackets"),
        ("[listen]\npinned = ['kafka']", "`listen.pinned`: there is no door 'kafka'"),
        ("[listen]\npinned = ['rustlog', 'flymq']", "`listen.pinned`: rustlog and flymq share"),
        ("[listen]\nflight = '127.0.0.1:8080'", "`listen.flight`: http is at 127.0.0.1:8080 too"),
        ("[security]\nmode = 'maybe'", "`security.mode`: Invalid enum value 'maybe'"),
        ("[security]\ngrants = [{principal = 'x', permissions = ['fly']}]", "Invalid enum value 'fly' (at [0].perm"),
        ("[security]\ngrants = [{principal = 'x'}]", "missing required field `permissions` (at [0])"),
        ("[security]\ngrants = [{principal = 'x', permissions = ['read'], hat = 1}]", "unknown field `hat`"),
        ("[tls]\ncert = 'x'", "`tls.cert`: needs `tls.key` beside it"),
        ("[tls]\nkey = 'x'", "`tls.key`: needs `tls.cert` beside it"),
        ("[tls]\nrequired = true", "`tls.required`: needs `tls.cert`"),
        ("[limits]\nconnection_bytes = '1GiB'", "`limits.connection_bytes`: is larger than `limits.total_bytes`"),
        ("[limits]\nrecord_bytes = '128MiB'", "`limits.record_bytes`: is larger than `log.entry_bytes`"),
        ("= 3", "is not valid TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_with_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        load(file=file)
    assert str(refused.value).startswith(f"{file}: ")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PENSTOCK_LOG__COLOUR", "red", "PENSTOCK_LOG__COLOUR: there is no key `log.colour`"),
        ("PENSTOCK_DATADIR", "/x", "PENSTOCK_DATADIR: there is no key `datadir`; did you mean `data_dir`?"),
        ("PENSTOCK_LOG__FILE_BYTES", "many", "PENSTOCK_LOG__FILE_BYTES: `log.file_bytes`: expected a number"),
        ("PENSTOCK_SECURITY__GRANTS", "[{]", "PENSTOCK_SECURITY__GRANTS: `security.grants`: JSON is malformed"),
        ("PENSTOCK_TOPICS__AUTO_CREATE_TOPICS", "perhaps", "`topics.auto_create_topics`: Expected true or false"),
    ],
)
def test_what_is_wrong_in_the_environment_is_refused_with_the_variable(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(environment={name: value})
    assert said in str(refused.value)


def test_what_is_wrong_in_a_flag_is_refused_with_the_flag() -> None:
    with pytest.raises(ConfigError, match=r"^--durability: `log.durability`: Invalid enum value 'maybe'"):
        load(flags={"log.durability": "maybe"})
    with pytest.raises(ConfigError, match=r"^--listen rustlog=: `listen.rustlog`: expected HOST:PORT"):
        load(flags={"listen.rustlog": "nowhere"})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing.toml: cannot be read: No such file"):
        load(file=str(tmp_path / "missing.toml"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("65536", 65536),
        ('"65536"', 65536),
        ('"64KiB"', 65536),
        ('"1.5 MiB"', 1572864),
        ('"1mb"', 1000000),
        ('"1GiB"', 1 << 30),
    ],
)
def test_sizes_are_numbers_or_texts_with_a_unit(tmp_path: Path, text: str, value: int) -> None:
    assert load(file=written(tmp_path, f"[log]\nfile_bytes = {text}")).settings.log.file_bytes == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ('"90"', 90),
        ('"90s"', 90),
        ('"2m"', 120),
        ('"1.5h"', 5400),
        ('"7d"', 604800),
        ('"1w"', 604800),
    ],
)
def test_durations_are_seconds_or_texts_with_a_unit(tmp_path: Path, text: str, value: float) -> None:
    assert (
        load(file=written(tmp_path, f"[topics]\nretention_seconds = {text}")).settings.topics.retention_seconds == value
    )


def test_lists_come_from_a_variable_as_json_or_with_commas() -> None:
    grants = '[{"principal": "anonymous", "permissions": ["read", "describe"], "topic": "public-*"}]'
    config = load(environment={"PENSTOCK_SECURITY__GRANTS": grants, "PENSTOCK_LISTEN__PINNED": "http, kimberlite"})
    assert config.settings.security.grants[0].topic == "public-*"
    assert config.settings.listen.pinned == ("http", "kimberlite")


def test_variables_of_the_test_suite_and_the_client_are_no_keys() -> None:
    names = ("PENSTOCK_CONFIG", "PENSTOCK_SERVER", "PENSTOCK_CRASH_SEEDS", "PENSTOCK_BENCH_SECONDS")
    assert load(environment=dict.fromkeys(names, "1")).settings == Settings()


def test_the_effective_configuration_is_printed_as_a_file_that_means_the_same(tmp_path: Path) -> None:
    source = written(
        tmp_path,
        'data_dir = "/var/\\"penstock\\""\n[log]\nroll_seconds = "90m"\n[security]\nmode = "on"\n'
        'grants = [{principal = "anonymous", permissions = ["read"]}]\n[listen]\npinned = ["rustlog"]\n',
    )
    config = load(file=source, environment={"PENSTOCK_LIMITS__IDLE_SECONDS": "0.5"})
    text = to_toml(config)
    again = load(file=written(tmp_path, text))
    assert again.settings == config.settings
    assert len(again.origins) == len(keys())
    assert 'mode = "on"  # ' + source in text
    assert "idle_seconds = 0.5  # PENSTOCK_LIMITS__IDLE_SECONDS" in text
    assert tomllib.loads(text)["log"]["roll_seconds"] == 5400


def test_every_flag_names_a_key() -> None:
    assert set(FLAG_OF) <= set(keys())
    assert DOOR_NAMES == ("rustlog", "blipmq", "flymq", "kimberlite", "felix", "http", "flight", "flymq_admin")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9092", Endpoint("127.0.0.1", 9092)),
        ("[::1]:9092", Endpoint("::1", 9092)),
        (":9092", Endpoint("0.0.0.0", 9092)),
        ("localhost:0", Endpoint("localhost", 0)),
        ("off", None),
    ],
)
def test_addresses(text: str, expected: Endpoint | None) -> None:
    assert parse_endpoint(text) == expected
    if expected is not None and not text.startswith(":"):
        assert str(expected) == text
