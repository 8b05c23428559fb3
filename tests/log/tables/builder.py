"""The process that `test_kills` kills: it builds, compacts and cleans, over and over, as the broker's child does.

Imports are what takes time, so this process makes them once and forks a builder for every line of its input, which
says how long that one may live: it is killed as nothing else can be killed, by SIGKILL from outside.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from random import Random

import pyarrow as pa
from tests.log.tables.source import TOPIC, spans

from penstock.log.files import OsFiles
from penstock.log.tables import maintenance
from penstock.log.tables.build import build
from penstock.log.tables.location import table_ref
from penstock.log.tailer import Tailer


def work(root: Path, seed: int) -> None:
    """Bring the table up to date, with care of it in between; then go on with care of it until killed."""
    random = Random(seed)
    ref = table_ref(str(root / "tables"), {}, "default", "default", "orders", TOPIC)
    tailer = Tailer(OsFiles(str(root / "data")))
    tailer.refresh()
    for file in tailer.segments[:-1]:
        # What the broker knows lags behind the table: it asks for everything again.
        build(ref, file, spans(file))
        if random.random() < 0.3:
            maintenance.compact(ref, min_files=2, target_bytes=random.choice((8 << 10, 64 << 10)))
        if random.random() < 0.3:
            maintenance.clean(ref, time.time_ns() // 1000, keep_seconds=0)
    os.write(1, b"done\n")
    signal.pause()


def main() -> None:
    root = Path(sys.argv[1])
    pa.array([1])  # loads pandas, if there is one
    maintenance.CHECKPOINT_EVERY = 4  # type: ignore[misc] # so that some die in the middle of one
    for line in sys.stdin:
        seed, seconds = line.split()
        child = os.fork()
        if child == 0:
            work(root, int(seed))
        time.sleep(float(seconds))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.write(1, b"killed\n")


if __name__ == "__main__":
    main()
