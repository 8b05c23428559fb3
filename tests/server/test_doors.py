"""The table of doors."""

from __future__ import annotations

from penstock.admin.environment import Environment
from penstock.config.settings import Settings
from penstock.server.doors import BUILT, FLIGHT, quic_door, stream_doors


def test_every_door_that_is_built_can_be_opened() -> None:
    assert set(stream_doors(Settings(), Environment())) | {quic_door(Settings()).name} == set(BUILT) - {FLIGHT}
