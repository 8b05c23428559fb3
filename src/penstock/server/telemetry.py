"""OpenTelemetry: sends the spans of `broker/runtime/tracing` to the collector at `telemetry.otlp_endpoint`, by OTLP
over HTTP. Needs `penstock[otel]`.

A thread of the SDK sends them in batches; spans that the collector does not accept in time are dropped, and nothing
waits for it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.broker.broker import Broker
from penstock.broker.runtime.tracing import Span, Tracing
from penstock.config.settings import TelemetrySection
from penstock.server.errors import StartFailed

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

EXPORT_SECONDS: Final = 5  # timeout of the collector for one batch
FLUSH_MS: Final = 3_000  # for the last spans, on shutdown


class Telemetry:
    """The exporter of one broker. Raises StartFailed."""

    def __init__(self, section: TelemetrySection) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace import SpanKind, Status, StatusCode
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise StartFailed(
                f"telemetry.otlp_endpoint is set, and OpenTelemetry is not installed ({error}): "
                "pip install 'penstock[otel]'"
            ) from None
        self._section = section
        resource = Resource.create({"service.name": section.service_name, "service.version": __version__})
        self._provider: TracerProvider = TracerProvider(resource=resource)
        exporter = OTLPSpanExporter(endpoint=section.otlp_endpoint, timeout=EXPORT_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("penstock", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER
        self._failed = lambda reason: Status(StatusCode.ERROR, reason)

    def trace(self, broker: Broker) -> None:
        """Enable tracing in the broker."""
        broker.trace(Tracing(self.export, self._section.sample_ratio, broker.turns.timer, time.time_ns))

    def export(self, span: Span) -> None:
        context = self._propagator.extract({"traceparent": span.parent}) if span.parent else None
        made = self._tracer.start_span(
            span.name, context, self._kind, attributes=dict(span.attributes), start_time=span.start
        )
        if span.error:
            made.set_status(self._failed(span.error))  # type: ignore[no-untyped-call]
        made.end(span.end)

    def close(self) -> None:
        """Send the remaining spans. Blocks for a few seconds at most."""
        self._provider.force_flush(FLUSH_MS)
        self._provider.shutdown()
