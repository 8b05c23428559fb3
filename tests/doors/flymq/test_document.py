"""`docs/protocols/flymq.md`: every limit that it names is the one that the server has, and its rules of topics hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.flymq.peer import Peer

from penstock.broker import limits, names
from penstock.broker.fetch import filters
from penstock.broker.queues import dead_letters as letters
from penstock.config.layers import load
from penstock.config.settings import ConfigError, FlyMqSection, TopicsSection
from penstock.doors.flymq import session
from penstock.doors.flymq.handlers import dead_letters, fetch
from penstock.wire.flymq import errors, opcodes
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec import requests

PAGE = (Path(__file__).parents[3] / "docs/protocols/flymq.md").read_text()
TEXT = " ".join(PAGE.split())
MIB = 1 << 20

LIMITS = {
    r"length u32: the bytes of the payload, 0 to ([\d,]+)": opcodes.MAX_PAYLOAD,
    r"length above ([\d,]+) \| the connection closes": opcodes.MAX_PAYLOAD,
    r"one gzip member, to ([\d,]+) bytes at most": opcodes.MAX_PAYLOAD,
    r"at most; ([\d,]+) before a login": session.MAX_LOGIN,
    r"Lists in requests have at most ([\d,]+) elements": requests.MAX_NAMES,
    r"elements, batches ([\d,]+) records": requests.MAX_BATCH,
    r"FETCH \| at most ([\d,]+) records and": fetch.MAX_MESSAGES,
    r"records and (\d+) MiB, or one record": fetch.MAX_BYTES // MIB,
    r"--fetch-wait`\), below (\d+) s": fetch.MAX_WAIT // 1_000_000,
    r"such a path, of (\d+) names at most": filters.MAX_NAMES,
    r"regular expression \(RE2, up to (\d+) characters\)": filters._EXPRESSION_CHARACTERS,
    r"something fits, for (\d+) s at most": fetch.MAX_SCAN // 1_000_000,
    r"FETCH_DLQ lists ([\d,]+) letters": min(dead_letters.MAX_MESSAGES, letters.FETCH_LETTERS),
    r"letters or (\d+) MiB at most": letters.FETCH_BYTES // MIB,
    r"names \| A topic's name has 1 to ([\d,]+) characters": names.MAX_NAME_CHARACTERS,
    r"characters, ([\d,]+) bytes of UTF-8 at most": names.MAX_NAME_BYTES,
    r"with so many partitions, ([\d,]+) at most": limits.Limits().partitions_per_topic,
    r"every text begins with `E: `; at most (\d+) bytes": errors.MAX_TEXT,
}


@pytest.mark.parametrize("pattern", LIMITS)
def test_the_page_has_the_limits_of_the_server(pattern: str) -> None:
    found = re.findall(pattern, TEXT)
    assert [int(number.replace(",", "")) for number in found] == [LIMITS[pattern]]


def test_the_values_of_auth_reply_are_documented_and_listed_when_one_is_wrong(tmp_path: Path) -> None:
    values = get_args(get_type_hints(FlyMqSection)["auth_reply"])
    assert set(values) == {style.value for style in m.AuthStyle}
    (decision,) = [line for line in PAGE.splitlines() if line.startswith("| 5 |")]
    assert all(f"`{value}`" in decision for value in values)
    assert f"`{FlyMqSection().auth_reply}`, which is the default" in decision
    path = tmp_path / "penstock.toml"
    path.write_text('[flymq]\nauth_reply = "orginal"\n')
    with pytest.raises(ConfigError, match=f"flymq.auth_reply.*one of {', '.join(values)}"):
        load(file=str(path))


def test_the_rules_of_topics() -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    assert peer.ask(m.CreateTopic("a" * 256, 1)) == peer.ask(m.CreateTopic("a/b", 0)) == m.Done()
    for name in ("", "a" * 257, "é" * 257, "x\0", "a\\b", "a//b", "/a", "a/", ".", "..", "a/../b", "__own"):
        assert peer.refused(m.CreateTopic(name, 1)), name
    assert "partition" in peer.refused(m.CreateTopic("many", 1001))
    assert "partition" in peer.refused(m.CreateTopic("none", -1))
    assert peer.ask(m.CreateTopic("a/b", 7)) == m.Done(message="topic exists")
    described = peer.ask(m.Metadata("a/b"))
    assert isinstance(described, m.TopicMetadata) and len(described.partitions) == 1
    for read in (m.Fetch("new", 0, 0, 1), m.Consume("new", 0, 0), m.Subscribe("new", "g", 0, "earliest")):
        assert peer.refused(read).startswith("topic not found")
    assert isinstance(peer.ask(m.Produce("new", None, b"v")), m.RecordMetadata)
    assert peer.ask(m.ListTopics()) == m.TopicList(["a/b", "a" * 256, "new"])
    assert peer.ask(m.DeleteTopic("never")) == m.Done(message="no such topic")
    assert TopicsSection() == TopicsSection(auto_create_topics=True, retention_seconds=0, retention_bytes=0)


def test_the_length_bytes_that_go_clients_print_before_an_error_are_documented() -> None:
    peer = Peer(BrokerFixture())
    peer.feed(m.Consume("nowhere", 0, 0))
    (frame,) = peer.frames()
    assert frame.payload == b"\0\0\x12E: topic not found"
    assert "the bytes 00, 00 and 12" in TEXT and "then `E: topic not found`" in TEXT
