"""The memory of Spark's Python workers, which run one task after another, or plan one read after another."""

from __future__ import annotations

import gc
from functools import cache

from pyspark import SparkFiles, TaskContext


def freeze_imports() -> None:
    """In a worker, once: what has been imported stays until its end, and the garbage collector need not look at it.
    Spark collects garbage after every task and every plan, which takes 20 to 40 ms of processor time for the modules
    alone."""
    if TaskContext.get() is not None or SparkFiles._is_running_on_worker:  # the second also of those that plan
        _freeze()


@cache
def _freeze() -> None:
    gc.collect()  # what is frozen is never freed
    gc.freeze()
