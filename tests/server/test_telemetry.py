"""Traces: the spans of a broker, as an OTLP collector gets them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.launcher import BrokerProcess

import penstock
from penstock.clients import http

pytest.importorskip("opentelemetry.sdk", reason="penstock[otel] is not installed")

pytestmark = pytest.mark.process

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


class Collector:
    """A collector of traces: an HTTP server that takes OTLP's protobuf."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        self.spans: list[Any] = []
        self.services: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                import gzip

                data = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    data = gzip.decompress(data)
                request = ExportTraceServiceRequest.FromString(data)
                for group in request.resource_spans:
                    for attribute in group.resource.attributes:
                        if attribute.key == "service.name":
                            collector.services.add(attribute.value.string_value)
                    for scope in group.scope_spans:
                        collector.spans += scope.spans
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing: the tests' output is for others."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, name: str) -> list[Any]:
        return [span for span in list(self.spans) if span.name == name]


def attributes(span: Any) -> dict[str, Any]:
    found = {}
    for attribute in span.attributes:
        value = attribute.value
        found[attribute.key] = value.string_value if value.HasField("string_value") else value.int_value
    return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def broker(path: Path, collector: Collector, ratio: str) -> BrokerProcess:
    settings = {
        "PENSTOCK_TELEMETRY__OTLP_ENDPOINT": collector.url,
        "PENSTOCK_TELEMETRY__SAMPLE_RATIO": ratio,
        "PENSTOCK_TELEMETRY__SERVICE_NAME": f"broker at {ratio}",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    return BrokerProcess(path, **settings)


def test_what_records_and_requests_say_of_a_trace_is_continued(tmp_path: Path, collector: Collector) -> None:
    with broker(tmp_path, collector, "0") as process:
        with penstock.connect(process.ready().address("flymq")) as db:
            db.produce("orders", b"traced", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
            db.produce("orders", b"not sampled", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
            db.produce("orders", b"nonsense", headers={"traceparent": "00-00"})
            db.produce("orders", b"none")
            db.produce_many("orders", [b"1", b"2"], headers=[None, {"TraceParent": f"00-{TRACE}-{PARENT}-01"}])
        host, port = process.endpoint("http")
        with http.Client(host, port) as client:
            client.call(http.requests.call("GET", "topics", reply=dict))
        process.process.send_signal(signal.SIGTERM)  # sends what is left
        assert process.process.wait(30) == 0
    one, many = sorted(collector.named("publish orders"), key=lambda span: span.start_time_unix_nano)
    for span, count in ((one, 1), (many, 2)):
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        assert span.end_time_unix_nano > span.start_time_unix_nano
        found = attributes(span)
        assert (found["messaging.destination.name"], found["messaging.batch.message_count"]) == ("orders", count)
        assert (found["penstock.tenant"], found["penstock.namespace"]) == ("default", "default")
    assert collector.services == {"broker at 0"}
    assert [span.name for span in collector.spans if span.trace_id.hex() != TRACE] == []  # nothing else is sampled


def test_turns_commits_and_requests_are_sampled(tmp_path: Path, collector: Collector) -> None:
    with broker(tmp_path, collector, "1") as process:
        with penstock.connect(process.ready().address("flymq")) as db:
            db.produce("orders", b"v")
        host, port = process.endpoint("http")
        with http.Client(host, port) as client:
            client.call(http.requests.call("GET", "topics", reply=dict))
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(30) == 0
    assert attributes(collector.named("flymq commit")[0])["messaging.batch.message_count"] == 1
    request = attributes(collector.named("HTTP GET")[0])
    assert (request["url.path"], request["http.response.status_code"]) == ("/api/v1/topics", 200)
    turns = [span for span in collector.spans if attributes(span).get("penstock.door") == "flymq"]
    assert any("penstock.request" in attributes(span) for span in turns)


def test_a_broker_does_not_wait_for_a_collector_that_is_not_there(tmp_path: Path) -> None:
    nowhere = Collector()
    nowhere.close()
    with broker(tmp_path, nowhere, "1") as process:
        with penstock.connect(process.ready().address("flymq")) as db:
            assert db.produce("orders", b"v").offset == 0
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(30) == 0
