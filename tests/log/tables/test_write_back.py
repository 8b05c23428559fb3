"""Large files go to the disk in small steps."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path

import pytest

from penstock.log.tables.write_back import READ_BYTES, STEP_BYTES, read_ahead, write_back


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
    path.write_bytes(bytes(2 * READ_BYTES + 1))
    rests: list[None] = []

    read_ahead(str(path), lambda: rests.append(None))

    assert len(rests) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell it in other ways")
def test_the_system_reads_no_more_than_the_step(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("w+b") as file:
        file.write(os.urandom(64 * READ_BYTES))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if any(cached(file.fileno())):
            pytest.skip("this file system keeps what it was told to drop")
        found: list[int] = []
        read_ahead(str(path), lambda: found.append(sum(cached(file.fileno())) * mmap.PAGESIZE))
    assert found[:3] == [READ_BYTES, 2 * READ_BYTES, 3 * READ_BYTES]


def cached(descriptor: int) -> list[bool]:
    """Which pages of the file are in the system's cache."""
    with mmap.mmap(descriptor, 0) as memory:
        pages = (ctypes.c_ubyte * -(-len(memory) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(memory)
        address, size = ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(memory))
        result = ctypes.CDLL(None).mincore(address, size, pages)
        del start  # else the memory cannot be released
        assert result == 0
    return [bool(page & 1) for page in pages]


def test_an_empty_file_takes_no_step(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")

    write_back(str(path), lambda: pytest.fail("nothing was written"))
    read_ahead(str(path), lambda: pytest.fail("nothing was read"))
