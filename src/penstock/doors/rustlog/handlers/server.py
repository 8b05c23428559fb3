"""The broker itself: ping and metrics."""

from __future__ import annotations

import re
from typing import Final

from penstock.doors.reply import COMMITTED, Reply
from penstock.doors.rustlog.request_context import RustLogContext
from penstock.wire.rustlog.messages import MetricsFetch, MetricsFetchResponse, Ping, Pong

_WHOLE: Final = re.compile(r"(?m)( -?\d+)\.0$")


def ping(_context: RustLogContext, _request: Ping) -> Reply:
    return Reply(Pong(), COMMITTED)


def metrics(context: RustLogContext, _request: MetricsFetch) -> Reply:
    """Integers are written without a fraction, as in the original, whose tools cannot parse others."""
    text = context.broker.metrics_text(context.identity)
    return Reply(MetricsFetchResponse(_WHOLE.sub(r"\1", text)))
