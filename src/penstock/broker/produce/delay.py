"""Delayed records: the state of those that appear later, and when one may. Their contents wait in the log, in a
partition of no topic: no name leads there, so no door does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.broker.errors import DelayTooLong, InvalidArgument
from penstock.broker.limits import Limits
from penstock.broker.state.events import DelayedAdded
from penstock.broker.tenancy.fair_share import check_room
from penstock.log.engine import partition_id

WAITING: Final = partition_id(0, 0)  # topics are numbered from 1


class Delayed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record on its way. The order of fields is the stored format."""

    id: int  # never used again
    topic: int  # where it will appear
    partition: int  # -1: chosen when it is due
    due: int  # µs since 1970
    offset: int  # where its key, value and headers wait; a higher id has a higher offset
    created: int  # µs since 1970


def schedule(
    waiting: Mapping[int, Delayed],
    next_id: int,
    limits: Limits,
    tenant: str,
    mine: int,
    topic: int,
    partition: int,
    delay: int,
    offset: int,
    now: int,
) -> DelayedAdded:
    """`offset` is where the content will be kept, in the same entry of the log; `mine` is how many of those that wait
    are the tenant's."""
    if delay < 0:
        raise InvalidArgument("A record cannot appear before now: its delay is negative")
    if delay > limits.delay_us:
        raise DelayTooLong(delay, limits.delay_us)
    check_room("delayed records", limits.delayed, len(waiting), tenant, mine, limits.tenant_share)
    return DelayedAdded(next_id, topic, partition, now + delay, offset, now)
