"""`penstock schema` and `penstock topic set` as an operator uses them, with a broker that runs and without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess, Done, penstock

from penstock.clients.rustlog import Client, RustLogError

FIRST = b'{"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}\n'
BROKEN = b'{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id", "f"]}'
PROTO = b'syntax = "proto3"; message A { string id = 1; }'


@pytest.fixture(params=["stopped", "running"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A data directory, of a broker that runs or not."""
    directory = tmp_path / "data"
    directory.mkdir()
    if request.param == "stopped":
        yield directory
        return
    with BrokerProcess(directory) as broker:
        broker.ready()
        yield directory


def file(path: Path, content: bytes) -> str:
    target = path.parent / f"file-{abs(hash(content))}"
    target.write_bytes(content)
    return str(target)


def schema(data: Path, *arguments: str, stdin: str = "") -> Done:
    return penstock("schema", *arguments, "--data-dir", str(data), stdin=stdin)


def rows(data: Path, *arguments: str) -> list[list[str]]:
    done = schema(data, "list", *arguments)
    assert done.returncode == 0, done.stderr
    head, *found = (line.split("\t") for line in done.stdout.splitlines())
    assert head == ["name", "version", "kind", "compatibility", "bytes", "created"]
    return [row[:5] for row in found]


def test_schemas_are_registered_shown_checked_with_and_deleted(data: Path) -> None:
    assert schema(data, "register", "orders", file(data, FIRST), "--kind", "json").stdout == "orders version 1\n"
    assert schema(data, "register", "orders", file(data, FIRST), "--kind", "json").stdout == "orders version 1\n"
    done = schema(data, "register", "orders", file(data, BROKEN), "--kind", "json")
    assert done.returncode == 1 and "new required field 'f' not in old schema" in done.stderr
    assert schema(data, "mode", "orders", "none").stdout == "orders is none\n"
    done = schema(data, "register", "orders", "-", "--kind", "json", stdin=BROKEN.decode())
    assert done.stdout == "orders version 2\n"
    register = ("register", "a/b", file(data, PROTO), "--kind", "protobuf", "--tenant", "acme", "--namespace", "x")
    assert schema(data, *register).stdout == "a/b version 1\n"
    assert rows(data) == [["orders", "1", "json", "none", "81"], ["orders", "2", "json", "none", "86"]]
    assert rows(data, "--tenant", "acme", "--namespace", "x") == [["a/b", "1", "protobuf", "backward", "47"]]

    done = schema(data, "show", "orders", "--version", "1")
    assert done.stdout.encode() == FIRST and "version 1: json, compatibility none" in done.stderr
    assert schema(data, "show", "orders").stdout.encode() == BROKEN + b"\n"

    good = file(data, b'{"id": "x"}')
    assert schema(data, "validate", "orders", good, "--version", "1").stdout == "fits orders version 1\n"
    done = schema(data, "validate", "orders", good)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines() == [
        "missing required field: f",
        "type mismatch at id: expected integer, got string",
    ]

    assert schema(data, "delete", "orders", "--version", "2").stdout == "deleted orders version 2\n"
    assert schema(data, "validate", "orders", good).returncode == 0
    assert schema(data, "delete", "orders").stdout == "deleted orders\n"
    assert rows(data) == []


def test_the_largest_definition_and_message_get_through(data: Path) -> None:
    definition = FIRST + b" " * ((256 << 10) - len(FIRST))
    assert schema(data, "register", "s", file(data, definition), "--kind", "json").returncode == 0
    message = json.dumps({"id": "x" * ((1 << 20) - 10)}).encode()
    assert len(message) == 1 << 20
    assert schema(data, "validate", "s", file(data, message)).returncode == 0
    done = schema(data, "register", "s", file(data, definition + b" "), "--kind", "json")
    assert done.returncode == 1 and "262144 bytes" in done.stderr


def test_mistakes_are_told_in_a_line(data: Path) -> None:
    schema(data, "register", "s", file(data, FIRST), "--kind", "json")
    mistakes = (
        (("register", "s", "/nowhere", "--kind", "json"), 1, "/nowhere: No such file"),
        (("register", "s", file(data, FIRST)), 2, "--kind"),
        (("register", "s", file(data, FIRST), "--kind", "xml"), 2, "xml"),
        (("register", "s", file(data, b"{"), "--kind", "json"), 1, "not JSON"),
        (("register", "a\\b", file(data, FIRST), "--kind", "json"), 1, "backslash"),
        (("register", "s", file(data, PROTO + b"?"), "--kind", "protobuf"), 1, "schema.proto"),
        (("register", "s", file(data, FIRST), "--kind", "json", "--tenant", "a/b"), 1, "Tenant"),
        (("register", "s", file(data, b" " * (1 << 20) + b" "), "--kind", "json"), 1, "more than"),
        (("show", "x"), 1, "Schema 'x' not found"),
        (("show", "s", "--version", "7"), 1, "Schema 's' version 7 not found"),
        (("validate", "x", file(data, b"{}")), 1, "Schema 'x' not found"),
        (("mode", "s", "sideways"), 2, "sideways"),
        (("mode", "x", "none"), 1, "Schema 'x' not found"),
        (("delete", "s", "--version", "2"), 1, "version 2 not found"),
    )
    for arguments, code, said in mistakes:
        done = schema(data, *arguments)
        assert done.returncode == code and said in done.stderr, (arguments, done)
        assert "Traceback" not in done.stderr and done.stdout == ""
    assert len(rows(data)) == 1


def settings(data: Path, *arguments: str) -> Done:
    return penstock("topic", "set", "orders", *arguments, "--data-dir", str(data))


def test_a_topics_settings_are_changed_one_by_one_and_act_on_records(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker:
        host, port = broker.ready().endpoint("rustlog")
        with Client(host, port) as client:
            client.create_topic("orders", 1)
            assert settings(data).stdout == ""
            assert schema(data, "register", "order", file(data, FIRST), "--kind", "json").returncode == 0
            assert settings(data, "--schema", "order").stdout == "schema\torder\n"
            client.produce("orders", 0, [b'{"id": "x"}'])
            with pytest.raises(RustLogError, match="missing required field: id"):
                client.produce("orders", 0, [b"{}"])
            assert settings(data, "--rejected", "dead-letter").stdout == "schema\torder\nrejected\tdead-letter\n"
            client.produce("orders", 0, [b"{}"])
            assert client.describe_topic("orders").partitions[0].high_watermark == 1
            assert "table\toff\n" in settings(data, "--table", "off").stdout
            assert "table" not in settings(data, "--table", "default").stdout
            quantities = (
                "--retention",
                "1.5h",
                "--retention-bytes",
                "10MiB",
                "--expiry",
                "30s",
                "--fetch-wait",
                "500ms",
            )
            expected = {
                "schema": "order", "rejected": "dead-letter", "retention_seconds": "5400.0",
                "retention_bytes": "10485760", "expiry_seconds": "30.0", "fetch_wait_seconds": "0.5",
            }  # fmt: skip
            assert dict(line.split("\t") for line in settings(data, *quantities).stdout.splitlines()) == expected
            done = settings(data, "--no-schema", "--retention", "default", "--expiry", "default")
            assert "schema" not in done.stdout and "fetch_wait_seconds\t0.5" in done.stdout
            client.produce("orders", 0, [b"anything"])
            assert client.describe_topic("orders").partitions[0].high_watermark == 2
    kept = settings(data).stdout  # and after the broker has gone
    assert kept == done.stdout


def test_mistakes_about_settings_are_told_in_a_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker:
        host, port = broker.ready().endpoint("rustlog")
        with Client(host, port) as client:
            client.create_topic("orders", 1)
        for arguments, code, said in (
            (("--schema", "nothing"), 1, "Schema 'nothing' not found"),
            (("--schema", "a", "--no-schema"), 2, "choose one"),
            (("--rejected", "drop"), 2, "drop"),
            (("--retention", "soon"), 2, "--retention soon"),
            (("--retention", "5"), 2, "--retention 5"),
            (("--retention", "0s"), 1, "retention_seconds"),
            (("--retention-bytes", "0"), 1, "retention_bytes"),
            (("--fetch-wait", "1h"), 1, "fetch_wait_seconds"),
        ):
            done = settings(data, *arguments)
            assert done.returncode == code and said in done.stderr, (arguments, done)
            assert "Traceback" not in done.stderr and done.stdout == ""
        assert settings(data).stdout == ""
    done = penstock("topic", "set", "nothing", "--expiry", "1h", "--data-dir", str(data))
    assert done.returncode == 1 and "Topic 'nothing' not found" in done.stderr
