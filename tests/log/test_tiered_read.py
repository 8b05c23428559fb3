"""Damage to tables that readers meet: told once, and remembered until the offsets can be read again."""

from __future__ import annotations

import logging

import pytest
from tests.log.table import MemoryTable

from penstock.log.engine import partition_id
from penstock.log.errors import TableDamaged
from penstock.log.tiered_read import MAX_DAMAGE, DamageRegister, LazyTieredReader, place_of

P = partition_id(7, 1)


def damage(first: int = 0, end: int = 10, file: str = "/t/a.parquet") -> TableDamaged:
    return TableDamaged(file, "orders", 1, first, end, "value of these records", topic_id=7)


def test_damage_is_logged_once_with_file_topic_and_offsets(caplog: pytest.LogCaptureFixture) -> None:
    register = DamageRegister()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            register.add(damage())
        register.add(damage(10, 20))
    assert register.reads == 4 and len(register.list()) == len(caplog.records) == 2
    assert all(text in caplog.text for text in ("/t/a.parquet", "'orders', partition 1", "offsets 0 to 9"))
    assert place_of(damage()) == P


def test_what_can_be_read_again_is_no_damage_any_more() -> None:
    register = DamageRegister()
    register.add(damage(0, 10))
    register.add(damage(10, 20))
    register.readable(partition_id(7, 0), 0, 100)
    assert len(register.list()) == 2
    register.readable(P, 10, 11)
    assert [error.first for error in register.list()] == [0] and register.any
    register.forget(8)
    assert register.any
    register.forget(7)
    assert not register.any


def test_what_is_remembered_is_bounded() -> None:
    register = DamageRegister()
    for number in range(MAX_DAMAGE + 10):
        register.add(damage(number, number + 1))
    assert len(register.list()) == MAX_DAMAGE and register.reads == MAX_DAMAGE + 10


def test_a_reader_registers_damage_and_no_other_trouble() -> None:
    table = MemoryTable()
    reader = LazyTieredReader(lambda: table)
    table.failure = damage()
    for _ in range(2):
        with pytest.raises(TableDamaged):
            reader.read(P, 0, 10, 100, 100)
    assert reader.trouble == "" and [error.first for error in reader.damage.list()] == [0]
    table.failure = OSError("the store is away")
    with pytest.raises(OSError, match="away"):
        reader.read(P, 0, 10, 100, 100)
    assert reader.trouble == "the store is away" and len(reader.damage.list()) == 1
