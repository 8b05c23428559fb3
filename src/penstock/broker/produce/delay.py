"""Delayed records: their state, and the rules for scheduling one. Their contents are stored in the log, in a partition
that belongs to no topic and has no name, so that no door can reach it.
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
    """A delayed record. The order of fields is the stored format."""

    id: int  # never reused
    topic: int  # its destination
    partition: int  # -1: chosen when it is due
    due: int  # µs since 1970
    offset: int  # of its key, value and headers in `WAITING`; ascending with the id
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
    """The event that schedules a record. `offset` is where its content will be stored, in the same entry of the log;
    `mine` is the number of waiting records of the tenant.
    """
    if delay < 0:
        raise InvalidArgument("A record cannot appear before now: its delay is negative")
    if delay > limits.delay_us:
        raise DelayTooLong(delay, limits.delay_us)
    check_room("delayed records", limits.delayed, len(waiting), tenant, mine, limits.tenant_share)
    return DelayedAdded(next_id, topic, partition, now + delay, offset, now)
