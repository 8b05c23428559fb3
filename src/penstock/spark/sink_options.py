"""Options of the sink, `.option(…)`. Pure: no broker and no Spark needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.spark.options import ENDING, SELECTING, STARTING, OptionRefused, OptionValues, Retries

MAX_VERSION: Final = 1 << 62
WITHOUT_ANY: Final = (
    "There is no option at all: Spark passes those of a table to no sink in Python, neither for INSERT INTO nor for "
    "CREATE TABLE … AS SELECT. Write with df.write.format('penstock'); or give them in the statement, INSERT INTO name "
    "WITH ('bootstrap.servers' = '…', 'topic' = '…') SELECT …, for a table that has only columns to write: CREATE "
    "TABLE name (key BINARY, value BINARY) USING penstock"
)


class SinkOptions(NamedTuple):
    connection: dict[str, str]
    topic: str | None  # of all rows; None: in a column
    app: str | None  # application id of the publication, if set by the user
    version: int | None  # number of the publication, in a batch query
    retries: Retries
    null_is_empty: bool = False  # a null value is written as an empty one


def batch_options(options: Mapping[str, str], *, overwrite: bool) -> SinkOptions:
    if overwrite:
        raise OptionRefused(
            "A log is only ever added to, so mode('overwrite') is refused; write with mode('append'), and delete the "
            "topic before if it is to begin anew: penstock topic delete NAME"
        )
    found = _options(OptionValues(options))
    if (found.app is None) != (found.version is None):
        there, missing = ("txnAppId", "txnVersion") if found.version is None else ("txnVersion", "txnAppId")
        raise OptionRefused(
            f"Option {there!r} is given and {missing!r} is not; give both, so that a write that is done again is not "
            "there twice, or none of them"
        )
    return found


def stream_options(options: Mapping[str, str], *, overwrite: bool) -> SinkOptions:
    if overwrite:
        raise OptionRefused(
            "A log is only ever added to, so outputMode('complete') is refused; use outputMode('append'), with a "
            "watermark for aggregates, or foreachBatch(penstock.spark.into_topic(…)), which takes any output mode"
        )
    found = _options(OptionValues(options))
    if found.version is not None:
        raise OptionRefused(
            "Option 'txnVersion' is for df.write only: a stream numbers its batches itself; leave it out"
        )
    return found


def _options(given: OptionValues) -> SinkOptions:
    if not given.names():
        raise OptionRefused(WITHOUT_ANY)
    given.check_names()
    for name in (*SELECTING, *STARTING, *ENDING):
        if name in given:
            raise OptionRefused(f"Option {name!r} is for reading; when writing, give 'topic' or a column of that name")
    if "path" in given:
        raise given.refused(
            "path", "but only a broker writes to a data directory; start it, and give 'bootstrap.servers' instead"
        )
    for name in ("topic", "txnAppId"):
        if given.text(name) == "":
            raise given.refused(name, "it must not be empty")
    version = given.number("txnVersion", None, 0)
    if version is not None and version > MAX_VERSION:
        raise given.refused("txnVersion", f"at most {MAX_VERSION} is allowed")
    null_is_empty = given.choice("nullValues", ("refuse", "empty")) == "empty"
    return SinkOptions(
        given.connection(), given.text("topic"), given.text("txnAppId"), version, given.retries(), null_is_empty
    )
