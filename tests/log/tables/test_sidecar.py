"""Sidecars: bytes as Hadoop wants them, and what they tell."""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

import pytest

from penstock.log.tables import sidecar
from penstock.log.tables.sidecar import PIECE_BYTES, DamagedBytes
from penstock.log.tables.store import tighten


def test_the_bytes_are_hadoops(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    content = os.urandom(PIECE_BYTES + 5)
    path.write_bytes(content)
    sidecar.write(str(path))
    pieces = content[:PIECE_BYTES], content[PIECE_BYTES:]
    expected = b"crc\0" + PIECE_BYTES.to_bytes(4, "big") + b"".join(zlib.crc32(p).to_bytes(4, "big") for p in pieces)
    assert (tmp_path / ".a.parquet.crc").read_bytes() == expected
    assert sidecar.is_sidecar(str(tmp_path / ".a.parquet.crc")) and not sidecar.is_sidecar(str(path))
    assert sorted(found.name for found in tmp_path.iterdir()) == [".a.parquet.crc", "a.parquet"]


def test_damage_is_found_in_the_file_and_in_the_sidecar(tmp_path: Path) -> None:
    path = tmp_path / "a"
    content = bytes(3 * PIECE_BYTES)
    path.write_bytes(content)
    with pytest.raises(FileNotFoundError):
        sidecar.check(str(path))
    sidecar.write(str(path))
    assert sidecar.check(str(path)) is None
    path.write_bytes(content[: PIECE_BYTES + 3] + b"\x01" + content[PIECE_BYTES + 4 :])
    assert sidecar.check(str(path)) == DamagedBytes(PIECE_BYTES, 2 * PIECE_BYTES, 1)
    for other in (content[:-1], content + b"\0", b""):
        path.write_bytes(other)
        assert sidecar.check(str(path)) is not None
    path.write_bytes(content)
    known = (tmp_path / ".a.crc").read_bytes()
    for at in range(len(known)):
        (tmp_path / ".a.crc").write_bytes(known[:at] + bytes([known[at] ^ 1]) + known[at + 1 :])
        assert sidecar.check(str(path)) is not None, at


def test_others_are_kept_out_and_links_are_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    outside.chmod(0o644)
    root = tmp_path / "tables"
    (root / "a").mkdir(parents=True)
    (root / "a" / "file").write_bytes(b"")
    (root / "a" / "link").symlink_to(outside)
    for path, mode in ((root, 0o755), (root / "a", 0o750), (root / "a" / "file", 0o644)):
        path.chmod(mode)
    assert tighten(str(root)) == 3 and tighten(str(root)) == 0
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (root, root / "a", root / "a" / "file", outside)]
    assert modes == [0o700, 0o700, 0o600, 0o644]
