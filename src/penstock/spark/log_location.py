"""Connection options, the only ones of the functions besides the source: the log's address and credentials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.spark.options import BATCH_OUTAGE_MS, OptionRefused, OptionValues
from penstock.spark.outage_budget import OutageBudget


class LogLocation(NamedTuple):
    connection: dict[str, str]  # for `penstock.flight.connect`
    budget: OutageBudget  # for its calls


def log_location(options: Mapping[str, Any], function: str) -> LogLocation:
    """From keyword arguments, with `_` for `.` if preferred. Raises OptionRefused."""
    given = OptionValues({name if "." in name else name.replace("_", "."): value for name, value in options.items()})
    given.check_names()
    connection = given.connection()
    allowed = {name.lower() for name in (*connection, "retryTimeout")}
    for name in given.names():
        if name not in allowed:
            raise OptionRefused(f"Option {name!r} has no meaning for {function}")
    retries = given.retries(BATCH_OUTAGE_MS)
    return LogLocation(connection, OutageBudget(retries.timeout, retries.at_least, retries.interval))
