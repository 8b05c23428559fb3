"""Facts about the running broker that the administration API and `/health` show."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.layers import load
from penstock.server.server import Server


@pytest.mark.parametrize(
    ("settings", "durability"),
    [
        ({}, "synced"),
        ({"PENSTOCK_LOG__DURABILITY": "written"}, "written"),
        ({"PENSTOCK_STORAGE__URL": "kafka://a:1/b", "PENSTOCK_LOG__DURABILITY": "written"}, "replicated"),
    ],
)
def test_durability_is_what_an_acknowledgement_means(tmp_path: Path, settings: dict[str, str], durability: str) -> None:
    config = load(environment={"PENSTOCK_DATA_DIR": str(tmp_path), **settings})
    assert Server(config).environment.durability == durability
