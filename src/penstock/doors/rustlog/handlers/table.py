"""Every request with its handler."""

from __future__ import annotations

from typing import Final

from penstock.broker.security.access import Permission
from penstock.doors.handlers import Handler, reads, writes
from penstock.doors.rustlog.handlers import fetch, offsets, records, server, topics
from penstock.doors.rustlog.handlers.records import EmptyProduce
from penstock.wire.rustlog import messages as m

HANDLERS: Final[dict[type, Handler]] = {
    m.Produce: writes(records.produce, Permission.WRITE),
    EmptyProduce: reads(records.end_offset, Permission.WRITE),
    m.Fetch: reads(fetch.fetch, Permission.READ),
    m.OffsetCommit: writes(offsets.commit, Permission.COMMIT),
    m.OffsetFetch: reads(offsets.fetch, Permission.READ),
    m.CreateTopic: writes(topics.create, Permission.CREATE),
    m.ListTopics: reads(topics.list_topics, Permission.DESCRIBE),
    m.DescribeTopic: reads(topics.describe, Permission.DESCRIBE),
    m.DescribePartition: reads(topics.describe_partition, Permission.DESCRIBE),
    m.MetricsFetch: reads(server.metrics, Permission.METRICS),
    m.Ping: writes(server.ping),
}
