from __future__ import annotations

import pytest
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.errors import RecordUnsendable
from penstock.broker.fetch.unsendable import MAX_REMEMBERED

RECORD = RecordUnsendable(7, 30, 20)


def lines(caplog: pytest.LogCaptureFixture) -> int:
    return caplog.text.count("the record at offset 7 has 30 bytes, and a frame carries 20 at most")


def test_all_are_counted_and_each_topic_at_a_door_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    fixture = BrokerFixture()
    note = fixture.broker.unsendable.note
    for _ in range(3):
        note("flymq", "127.0.0.1:1", "t", RECORD)
    assert lines(caplog) == 1
    note("rustlog", "127.0.0.1:1", "t", RECORD)
    note("flymq", "127.0.0.1:2", "u", RECORD)
    assert lines(caplog) == 3
    fixture.pass_time(61)
    note("flymq", "127.0.0.1:1", "t", RECORD)
    assert lines(caplog) == 4
    assert fixture.broker.metrics.records_unsendable == 6
    assert "records_unsendable_total 6.0" in fixture.broker.exposition.text()


def test_ever_new_topics_fill_neither_memory_nor_the_log(caplog: pytest.LogCaptureFixture) -> None:
    fixture = BrokerFixture()
    for number in range(MAX_REMEMBERED + 10):
        fixture.broker.unsendable.note("flymq", "127.0.0.1:1", f"t{number}", RECORD)
    assert lines(caplog) == MAX_REMEMBERED
    fixture.pass_time(61)
    fixture.broker.unsendable.note("flymq", "127.0.0.1:1", "another", RECORD)
    assert lines(caplog) == MAX_REMEMBERED + 1
