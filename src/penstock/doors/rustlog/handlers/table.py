"""Every request with its handler."""

from __future__ import annotations

from typing import Final

from penstock.doors.handlers import Handler, reads, writes
from penstock.doors.rustlog.handlers import fetch, offsets, records, server, topics
from penstock.doors.rustlog.handlers.records import EmptyProduce
from penstock.wire.rustlog import messages as m

HANDLERS: Final[dict[type, Handler]] = {
    m.Produce: writes(records.produce),
    EmptyProduce: reads(records.end_offset),
    m.Fetch: reads(fetch.fetch),
    m.OffsetCommit: writes(offsets.commit),
    m.OffsetFetch: reads(offsets.fetch),
    m.CreateTopic: writes(topics.create),
    m.ListTopics: reads(topics.list_topics),
    m.DescribeTopic: reads(topics.describe),
    m.DescribePartition: reads(topics.describe_partition),
    m.MetricsFetch: reads(server.metrics),
    m.Ping: writes(server.ping),
}
