"""The settings of a topic. They are stored and reported as given; the comments name the code that applies each."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.broker.queries.declarations import Declarations, Dropped
from penstock.broker.queries.query import Declared


class TopicSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """`None` means the broker's default. Stored in events: fields may be added, never renamed or reused."""

    retention_seconds: float | None = None  # `Broker.maintain`
    retention_bytes: int | None = None  # of each partition; `Broker.maintain`
    expiry_seconds: float | None = None  # how long after the append a record is delivered
    data_class: str | None = None
    placement: str | None = None
    table: bool | None = None  # move closed segments to a table; `Tables`
    schema: str | None = None  # the subject whose latest version every record must match; `Schemas`
    rejected: Literal["error", "dead-letter"] | None = None  # of a record that does not match; default "error"
    fetch_wait_seconds: float | None = None  # how long an empty fetch waits
    declared: Declared | None = None  # as an SQL table; `Queries`
    dropped: tuple[Dropped, ...] = ()  # dropped declarations, for queries of the past; `Queries`

    @property
    def declarations(self) -> Declarations:
        return Declarations(self.declared, self.dropped)
