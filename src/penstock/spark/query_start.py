"""Starting a streaming query on a busy machine. A query first starts Python processes, and Spark gives each of them ten
seconds to come up, which is not configurable. A query that failed for this reason is started again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

ATTEMPTS: Final = 3
BEGIN_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.1
TOO_SLOW: Final = "Python worker failed to connect back"


def start(writer: Any) -> StreamingQuery:
    """Start the query of `df.writeStream…`, and wait until it has completed a batch or is idle."""
    return start_with_retries(writer.start, threading.Event())


def start_with_retries(start: Callable[[], StreamingQuery], stopped: threading.Event) -> StreamingQuery:
    """Start a query, again if its processes were too slow, and wait until it is working; not after `stopped` is set."""
    for attempt in range(ATTEMPTS):
        try:
            query = start()
        except Exception as error:  # a Spark Connect server starts some of the processes before it replies
            if TOO_SLOW not in str(error) or attempt == ATTEMPTS - 1:
                raise
            continue
        deadline = time.monotonic() + BEGIN_SECONDS
        while query.isActive and not _has_begun(query) and time.monotonic() < deadline:
            if stopped.wait(LOOK_SECONDS):
                return query
        if query.isActive or TOO_SLOW not in str(query.exception()):
            break
    return query


def _has_begun(query: StreamingQuery) -> bool:
    return query.lastProgress is not None or query.status["message"].startswith("Waiting")
