"""Large files go to the disk in small steps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.log.tables.write_back import STEP_BYTES, read_ahead, write_back


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such call")
def test_a_file_is_written_step_by_step_and_stays_as_it_is(tmp_path: Path) -> None:
    content = bytes(range(256)) * (2 * STEP_BYTES // 256) + b"rest"
    path = tmp_path / "file"
    path.write_bytes(content)
    rests = []

    write_back(str(path), lambda: rests.append(path.read_bytes() == content))

    assert rests == [True] * 3


def test_a_file_is_read_step_by_step(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(2 * STEP_BYTES + 1))
    rests: list[None] = []

    read_ahead(str(path), lambda: rests.append(None))

    assert len(rests) == 3


def test_an_empty_file_takes_no_step(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")

    write_back(str(path), lambda: pytest.fail("nothing was written"))
    read_ahead(str(path), lambda: pytest.fail("nothing was read"))
