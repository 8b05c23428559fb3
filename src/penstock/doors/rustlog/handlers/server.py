"""The broker itself: whether it is there, and its metrics."""

from __future__ import annotations

from penstock.doors.reply import COMMITTED, Reply
from penstock.doors.rustlog.request_context import RustLogContext
from penstock.wire.rustlog.messages import MetricsFetch, MetricsFetchResponse, Ping, Pong


def ping(_context: RustLogContext, _request: Ping) -> Reply:
    return Reply(Pong(), COMMITTED)


def metrics(context: RustLogContext, _request: MetricsFetch) -> Reply:
    return Reply(MetricsFetchResponse(context.broker.metrics_text(context.identity)))
