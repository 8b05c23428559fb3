"""The readers over a real data directory, without Spark: what only a real log can tell."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from tests.spark.data_dir import DataDir
from tests.spark.test_source import FULL, drive

from penstock.flight.errors import LogUnavailable
from penstock.log.lock import DirectoryLock
from penstock.spark.source import PenstockReader, PenstockStreamReader


def stream(data_dir: DataDir, **options: Any) -> PenstockStreamReader:
    given = data_dir.options | {"subscribe": "t", "startingoffsets": "earliest"} | options
    return PenstockStreamReader(FULL, {name.lower(): str(text) for name, text in given.items()})


def test_bytes_of_a_micro_batch(data_dir: DataDir) -> None:
    """Through the table and the journal: every record once, and no micro-batch far above its bytes."""
    data_dir.create("t", 2)
    written: list[bytes] = []
    for _ in range(20):
        values = [b"%04d" % (len(written) + number) + b"." * 996 for number in range(20)]
        data_dir.write("t", len(written) // 20 % 2, values)
        written += values
        if len(written) == 200:
            data_dir.to_tables()
    one = stream(data_dir, maxBytesPerTrigger=50_000)
    one.prepareForTriggerAvailableNow()
    batches = list(drive(one, None, one.getDefaultReadLimit()))
    found = [value for batch in batches for value in batch]
    assert sorted(found) == sorted(written)
    assert 4 <= len(batches) <= 12
    assert max(map(len, batches)) <= 100  # a whole stored batch of each partition may be more than its share


def test_no_waiting_for_a_directory_that_a_broker_uses(data_dir: DataDir) -> None:
    data_dir.create("t")
    lock = DirectoryLock(str(data_dir.root))
    lock.acquire()
    try:
        with pytest.raises(LogUnavailable, match=r"bootstrap\.servers"):
            PenstockReader(FULL, data_dir.options | {"subscribe": "t"}).partitions()
    finally:
        lock.release()


_READ_ALL = """
import sys
from penstock.spark.columns import full_schema
from penstock.spark.source import PenstockReader

reader = PenstockReader(full_schema("headers", "door"), {"path": sys.argv[1], "subscribe": "t"})
rows = sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))
print(rows, "pandas" in sys.modules)
"""


@pytest.mark.process
def test_reading_needs_no_pandas(data_dir: DataDir) -> None:
    """Arrow imports it with the first Python value that it converts, which would take longer than a short query."""
    data_dir.create("t", 2, expiry=3600)
    data_dir.write("t", 0, [b"a"], expires=[data_dir.now + 3_600_000_000])
    data_dir.write("t", 1, [b"b"] * 5_000, [b"k", None] * 2_500)
    data_dir.to_tables()
    data_dir.write("t", 0, [b"c", b"d"], headers=[(("h", b"1"),), ()])
    command = [sys.executable, "-c", _READ_ALL, str(data_dir.root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["5003", "False"]
