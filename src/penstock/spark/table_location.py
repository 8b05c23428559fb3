"""Locations and versions of Delta tables, in Spark's terms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from penstock.spark.options import OptionRefused

_WITH_A_MEANING: Final = re.compile(r"[\\{}\[\]*?]")  # special characters in Spark's paths
_HADOOP: Final = {"s3": "s3a", "gcs": "gs", "az": "abfss"}  # Hadoop's names of deltalake's file systems


class TableVersion(NamedTuple):
    """A version of a table, by number or time."""

    version: int | str | None
    timestamp: datetime | str | None  # or in ISO 8601


def version_at(url: str, options: Mapping[str, str], moment: TableVersion) -> int:
    from deltalake import DeltaTable

    if moment.version is not None and moment.timestamp is not None:
        raise OptionRefused("Both 'version' and 'timestamp' given; give one")
    if moment.version is not None:
        return int(moment.version)
    found = DeltaTable(url, storage_options=dict(options) or None)
    at = moment.timestamp
    assert at is not None
    found.load_as_version((datetime.fromisoformat(at) if isinstance(at, str) else at).astimezone(UTC))
    return int(found.version())


def for_spark(uri: str) -> str:
    """A location in Spark's form: with Hadoop's name of the file system."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        scheme, rest = "file", uri
    return f"{_HADOOP.get(scheme, scheme)}://{rest}"


def literal(path: str) -> str:
    """The path with escaped pattern characters."""
    return _WITH_A_MEANING.sub(lambda found: "\\" + found[0], path)
