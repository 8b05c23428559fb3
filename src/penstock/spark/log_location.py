"""The log's address, and who asks: the options that functions beside the source take, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.spark.options import PATIENCE_OF_BATCHES, Given, OptionRefused
from penstock.spark.outage_budget import OutageBudget


class LogLocation(NamedTuple):
    connection: dict[str, str]  # for `penstock.flight.connect`
    budget: OutageBudget  # for what is asked


def log_location(options: Mapping[str, Any], function: str) -> LogLocation:
    """Of keyword arguments, with `_` for `.` if one likes. Raises OptionRefused."""
    given = Given({name if "." in name else name.replace("_", "."): value for name, value in options.items()})
    given.check_names()
    connection = given.connection()
    allowed = {name.lower() for name in (*connection, "retryTimeout")}
    for name in given.names():
        if name not in allowed:
            raise OptionRefused(f"Option {name!r} has no meaning for {function}")
    retries = given.retries(PATIENCE_OF_BATCHES)
    return LogLocation(connection, OutageBudget(retries.timeout, retries.at_least, retries.interval))
