"""`penstock topic`, `produce` and `consume` against a broker with security on, from another machine's point of view."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator

import pytest
from tests.cli.secured import Secured, secured
from tests.launcher import COMMAND, WITHOUT_SETTINGS, BrokerProcess, penstock


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("records")) as running:
        yield running


def values(broker: Secured, topic: str, *arguments: str) -> list[str]:
    return broker.admin("consume", topic, "--format", r"%v\n", *arguments).splitlines()


def test_topics_are_made_listed_described_changed_and_deleted(broker: Secured) -> None:
    assert (
        broker.admin("topic", "create", "made", "-p", "2", "--retention", "7d") == "created made with 2 partition(s)\n"
    )
    assert "made\t2\t0\t0\n" in broker.admin("topic", "list")
    (listed,) = json.loads(broker.admin("topic", "list", "made", "--output", "json"))
    assert (listed["topic"], listed["partitions"]) == ("made", 2)
    assert broker.admin("topic", "describe", "made").splitlines() == [
        "partition\tfirst offset\tnext offset\tfiles", "0\t0\t0\t0", "1\t0\t0\t0",
    ]  # fmt: skip
    described = json.loads(broker.admin("topic", "describe", "made", "-o", "json"))
    assert described["settings"]["retention_seconds"] == 7 * 86_400
    assert broker.admin("topic", "set", "made", "--retention", "1d") == "retention_seconds\t86400.0\n"
    assert "table\toff\n" in broker.admin("topic", "set", "made", "--table", "off")
    assert json.loads(broker.admin("topic", "set", "made", "-o", "json"))["table"] is False
    done = broker.run("admin", "topic", "delete", "made", stdin="n\n")
    assert done.returncode == 1 and "nothing was changed" in done.stderr
    assert broker.run("admin", "topic", "delete", "made").returncode == 1
    assert broker.admin("topic", "delete", "made", stdin="y\n").endswith("deleted made\n")
    assert "made" not in broker.admin("topic", "list")


def test_other_namespaces_have_topics_of_their_own(broker: Secured) -> None:
    broker.admin("topic", "create", "apart", "--namespace", "reports")
    assert "apart" in broker.admin("topic", "list", "--namespace", "reports")
    assert "apart" not in broker.admin("topic", "list")
    broker.admin("topic", "delete", "apart", "--namespace", "reports", "--yes")


def test_who_may_not_is_told_so_in_a_line(broker: Secured) -> None:
    broker.admin("topic", "create", "guarded")
    broker.admin("produce", "guarded", "seen")
    assert broker.run("reader", "consume", "guarded", "--format", "%v").stdout == "seen"
    for refused in (("topic", "create", "mine"), ("topic", "delete", "guarded", "-y"), ("produce", "guarded", "x")):
        done = broker.run("reader", *refused)
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
        assert re.search("permission|may not|denied|authorized", done.stderr), done.stderr
    for arguments in (("topic", "list"), ("produce", "guarded", "x"), ("consume", "guarded")):
        done = broker.run(None, *arguments)
        assert done.returncode == 1 and "--user, --key-file or --token-file" in done.stderr, done.stderr
    assert values(broker, "guarded") == ["seen"]


def test_a_wrong_password_is_told(broker: Secured) -> None:
    (broker.elsewhere / "wrong").write_text("a guess\n")
    done = broker.run("reader", "topic", "list", "--user", "reader", "--password-file", str(broker.elsewhere / "wrong"))
    assert done.returncode == 1 and done.stderr.startswith("penstock: ") and "Traceback" not in done.stderr


def test_a_mistyped_name_is_asked_about_and_makes_no_topic(broker: Secured) -> None:
    broker.admin("topic", "create", "payments")
    for command in (("produce", "paymens", "x"), ("consume", "paymens")):
        done = broker.run("admin", *command)
        assert done.returncode == 1 and "did you mean 'payments'?" in done.stderr
    assert "paymens" not in broker.admin("topic", "list")


def test_records_have_keys_headers_partitions_and_times(broker: Secured) -> None:
    broker.admin("topic", "create", "full", "-p", "2")
    said = broker.admin("produce", "full", "a", "b", "--key", "k", "-H", "trace=1", "-H", "n=ü", "--partition", "1")
    assert said == "full/1: offsets 0 to 1\n"
    lines = [json.loads(line) for line in broker.admin("consume", "full", "-o", "jsonl").splitlines()]
    first = lines[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first.pop("time"))
    assert first == {
        "topic": "full", "partition": 1, "offset": 0, "key": "k", "value": "a", "headers": {"trace": "1", "n": "ü"},
    }  # fmt: skip
    assert json.loads(broker.admin("consume", "full", "-o", "json"))[1]["value"] == "b"
    assert broker.admin("consume", "full", "--format", r"%t/%p@%o %k=%v [%h] %K %V%%\n").splitlines() == [
        "full/1@0 k=a [trace=1,n=ü] 1 1%", "full/1@1 k=b [trace=1,n=ü] 1 1%",
    ]  # fmt: skip
    assert json.loads(broker.admin("consume", "full", "-p", "0", "-o", "json")) == []


def test_lines_files_json_and_raw_input(broker: Secured) -> None:
    broker.admin("topic", "create", "input")
    assert (
        broker.admin("produce", "input", stdin="one\ntwo\r\n\nlast") == "input/0: offsets 0 to 2\ninput/0: offset 3\n"
    )
    assert values(broker, "input") == ["one", "two", "", "last"]
    (broker.elsewhere / "whole").write_bytes(b"two\nlines")
    assert broker.admin("produce", "input", "--file", "whole", "--format", "raw") == "input/0: offset 4\n"
    assert broker.admin("consume", "input", "--from", "4", "--format", "%v", "--raw") == "two\nlines"
    assert broker.admin("consume", "input", "--from", "4", "--format", "%v") == r"two\nlines"
    broker.admin("topic", "create", "copy")
    broker.admin("produce", "copy", "--format", "jsonl", stdin=broker.admin("consume", "input", "-o", "jsonl"))
    assert values(broker, "copy") == values(broker, "input")
    odd = '{"value_base64": "/w==", "headers": {"a": ["1", {"base64": "/g=="}]}}\n{"value": {"x": 1}}\n'
    broker.admin("produce", "copy", "--format", "jsonl", stdin=odd)
    assert values(broker, "copy", "--last", "2") == [r"\xff", '{"x":1}']
    found = json.loads(broker.admin("consume", "copy", "--from", "5", "-o", "json"))
    assert found[0]["value_base64"] == "/w==" and found[0]["headers"] == {"a": ["1", {"base64": "/g=="}]}
    done = broker.run("admin", "produce", "copy", "--format", "jsonl", stdin="{}\n")
    assert done.returncode == 1 and "line 1: there is no value" in done.stderr


def test_another_tenant_and_namespace(broker: Secured) -> None:
    """A user is one of its tenant; the broker without security lets everybody go anywhere."""
    there = ("--tenant", "acme", "--namespace", "blue")
    with BrokerProcess(broker.elsewhere / "open", "--durability", "memory") as running:
        at = {"PENSTOCK_SERVER": running.ready().address("rustlog")}
        assert penstock("topic", "create", "here", *there, **at).returncode == 0
        assert penstock("produce", "here", "one", *there, **at).stdout == "here/0: offset 0\n"
        assert penstock("consume", "here", "--format", "%v\\n", *there, **at).stdout == "one\n"
        assert "there is no topic" in penstock("consume", "here", **at).stderr


def test_headers_of_a_record_that_expires(broker: Secured) -> None:
    broker.admin("topic", "create", "short")
    broker.admin("produce", "short", "x", "--ttl", "1h", "--header", "a=1")
    (found,) = json.loads(broker.admin("consume", "short", "-o", "json"))
    assert found["headers"] == {"a": "1"}


def test_where_reading_begins_and_ends(broker: Secured) -> None:
    broker.admin("topic", "create", "span")
    broker.admin("produce", "span", *(f"v{number}" for number in range(10)))
    assert values(broker, "span", "--last", "2") == ["v8", "v9"]
    assert values(broker, "span", "--from", "3", "--to", "5") == ["v3", "v4"]
    assert values(broker, "span", "--from", "7", "--limit", "2") == ["v7", "v8"]
    assert len(values(broker, "span", "--from", "@-1h")) == 10
    assert values(broker, "span", "--from", "@-1h", "--to", "@-30m") == []
    assert values(broker, "span", "--from", "latest") == []
    assert values(broker, "span", "--grep", "v[45]$") == ["v4", "v5"]


def test_the_last_of_several_partitions_are_those_of_all_together(broker: Secured) -> None:
    broker.admin("topic", "create", "wide", "-p", "3")
    for number in range(5):
        broker.admin("produce", "wide", f"v{number}", "--partition", str(number % 3))
    assert values(broker, "wide", "--last", "2") == ["v3", "v4"]
    assert values(broker, "wide") == [f"v{number}" for number in range(5)]


def test_a_group_goes_on_where_it_stood_and_passes_nothing_over(broker: Secured) -> None:
    broker.admin("topic", "create", "shared")
    broker.admin("produce", "shared", *(f"v{number}" for number in range(6)))
    assert values(broker, "shared", "--group", "g", "--limit", "2") == ["v0", "v1"]
    assert values(broker, "shared", "--group", "g", "--to", "4") == ["v2", "v3"]
    assert values(broker, "shared", "--group", "g", "--to", "@-1h") == []
    assert values(broker, "shared", "--group", "g") == ["v4", "v5"]
    assert values(broker, "shared", "--group", "g") == []


def test_what_somebody_else_wrote_cannot_move_the_cursor(broker: Secured) -> None:
    broker.admin("topic", "create", "hostile")
    broker.admin("produce", "hostile", "\x1b[2Jgone\x07", "--key", "a\tb")
    line = broker.admin("consume", "hostile")
    assert "\x1b" not in line and r"\x1b[2Jgone\x07" in line and r"a\tb" in line


def test_records_that_appear_later_and_such_that_end(broker: Secured) -> None:
    broker.admin("topic", "create", "timed")
    assert "delayed record" in broker.admin("produce", "timed", "later", "--delay", "1h")
    assert broker.admin("produce", "timed", "brief", "--ttl", "1h") == "timed/0: offset 0\n"
    assert values(broker, "timed") == ["brief"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("consume", "t", "--from", "soon"), "--from soon: expected an offset"),
        (("consume", "t", "--from", "@soon"), "--from @soon: expected a time"),
        (("consume", "t", "--grep", "("), "--grep ("),
        (("consume", "t", "--format", "%q"), "there is no %q"),
        (("consume", "t", "--last", "3", "--from", "1"), "--last"),
        (("consume", "t", "--follow", "-o", "json"), "jsonl"),
        (("produce", "t", "v", "--header", "x"), "expected NAME=VALUE"),
        (("produce", "t", "v", "--file", "x"), "choose one"),
        (("produce", "t", "v", "--delay", "1h", "--ttl", "1h"), "choose one"),
        (("produce", "t", "v", "--delay", "soon"), "--delay soon"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_done(arguments: tuple[str, ...], said: str) -> None:
    done = penstock(*arguments, "--server", "127.0.0.1:1")
    assert done.returncode == 2 and said in done.stderr


def environment(broker: Secured) -> dict[str, str]:
    return WITHOUT_SETTINGS | {
        "PENSTOCK_SERVER": broker.server, "PENSTOCK_USER": "admin", "HOME": str(broker.elsewhere),
        "PENSTOCK_PASSWORD_FILE": str(broker.elsewhere / "admin"),
    }  # fmt: skip


def test_a_line_of_a_slow_pipe_is_sent_when_it_comes(broker: Secured) -> None:
    broker.admin("topic", "create", "slow")
    with subprocess.Popen(
        [*COMMAND, "produce", "slow"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(broker)
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for number in range(2):
            process.stdin.write(b"line\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"slow/0: offset %d\n" % number
        process.stdin.close()
        assert process.wait(20) == 0


def test_a_reader_that_goes_away_ends_it_quietly(broker: Secured) -> None:
    broker.admin("topic", "create", "flood")
    broker.admin("produce", "flood", stdin="x" * 1000 + "\n" * 1)
    broker.admin("produce", "flood", stdin=("y" * 1000 + "\n") * 900)
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*COMMAND, "consume", "flood"], stdout=write, stderr=subprocess.PIPE, env=environment(broker))
    os.close(write)
    assert done.returncode == 1 and done.stderr == b""
