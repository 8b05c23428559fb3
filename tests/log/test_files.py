"""Files of the operating system: parts written one after the other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.log.files import MAX_PARTS, PIECE_BYTES, OsFiles, pieces


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([5], [1]),
        ([PIECE_BYTES + 1], [1]),  # what is too large by itself stays whole
        ([1, PIECE_BYTES], [1, 1]),
        ([PIECE_BYTES // 2] * 4 + [1], [2, 2, 1]),
        ([0, PIECE_BYTES, 0, 0], [4]),
        ([1] * (MAX_PARTS + 1), [MAX_PARTS, 1]),
    ],
    ids=str,
)
def test_a_system_call_writes_so_many_parts(sizes: list[int], expected: list[int]) -> None:
    parts = [bytes(size) for size in sizes]
    found = list(pieces(parts))
    assert [len(piece) for piece, _ in found] == expected
    assert [part for piece, _ in found for part in piece] == parts
    assert [size for _, size in found] == [sum(map(len, piece)) for piece, _ in found]


@pytest.mark.parametrize("takes", [None, 1, 1000, PIECE_BYTES - 1], ids=["all", "1", "1000", "all-but-one"])
def test_all_parts_are_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: int | None) -> None:
    """Also if the system writes only so many bytes of each call."""
    whole = os.pwritev
    if takes is not None:
        monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: whole(fd, [b"".join(parts)[:takes]], at))
    parts = [b"head", *[os.urandom(200_000) for _ in range(25)], *[bytes([number % 256]) for number in range(3000)]]
    file = OsFiles(str(tmp_path)).create("file", 0)
    file.write_parts(10, parts)
    assert file.read(10, 10_000_000) == b"".join(parts)
