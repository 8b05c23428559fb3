from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import mmap
from penstock.workers.sql.memory import MemoryLimit, data_bytes

limit = MemoryLimit(64 << 20, 64 << 20)
print(limit.used_up)
kept = mmap.mmap(-1, 40 << 20, flags=mmap.MAP_PRIVATE)  # more than half of the overhead, and never touched
print(limit.used_up)
try:
    mmap.mmap(-1, 100 << 20, flags=mmap.MAP_PRIVATE)
except OSError:
    print("no memory")
kept.close()
print(limit.used_up)
"""


def test_what_is_left_behind_uses_up_what_the_next_statement_may_take() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.split("\n")[:-1], done.stderr) == (["False", "True", "no memory", "False"], "")
