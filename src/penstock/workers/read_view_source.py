"""What a survey of the broker means to a process that reads the records itself: where they are, and which are live."""

from __future__ import annotations

from penstock.flight.reading import Source
from penstock.log.arrow import LiveView
from penstock.log.engine import partition_id
from penstock.log.tables.location import TableRef
from penstock.workers.flight.rpc_messages import Survey


def source_of(survey: Survey, which: int) -> Source:
    part, place = survey.partitions[which], survey.table
    table = None if place is None else TableRef(survey.topic, survey.name, place.url, place.options)
    return Source(partition_id(survey.topic, part.number), survey.name, table, part.start, part.end)


def view_of(survey: Survey, which: int) -> LiveView:
    part = survey.partitions[which]
    return LiveView(survey.now, survey.horizon, part.gone_below, part.gone)
