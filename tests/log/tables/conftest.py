from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.log.tables.source import Source


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    made = Source(tmp_path)
    yield made
    made.close()
