"""What is kept of records that are to appear later. Their contents wait in the log, in an internal topic."""

from __future__ import annotations

import msgspec


class Delayed(msgspec.Struct, frozen=True, array_like=True):
    """A record on its way. The order of fields is the stored format."""

    id: int  # never used again
    topic: int  # where it will appear
    partition: int  # -1: chosen when it is due
    due: int  # µs since 1970
    offset: int  # where its key, value and headers wait
    created: int  # µs since 1970
