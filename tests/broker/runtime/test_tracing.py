"""Spans: what is sampled, what continues a trace, and how many there are at most."""

from __future__ import annotations

import pytest
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.runtime.tracing import MAX_PER_SECOND, Span, Tracing, context_of, is_sampled
from penstock.broker.security.access import ANONYMOUS

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (SAMPLED, True),
        (SAMPLED[:-2] + "03", True),
        (SAMPLED[:-2] + "00", False),
        ("00-" + "0" * 32 + "-b7ad6b7169203331-01", False),
        ("00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01", False),
        (SAMPLED.upper(), False),
        (SAMPLED + "-more", False),
        ("ff" + SAMPLED[2:], False),
        ("", False),
    ],
)
def test_which_contexts_are_of_a_sampled_trace(text: str, sampled: bool) -> None:
    assert is_sampled(text) is sampled
    assert context_of([(), (("other", b"x"), ("TraceParent", text.encode()))]) == (text if sampled else "")


class Scene:
    def __init__(self, ratio: float) -> None:
        self.spans: list[Span] = []
        self.fixture = BrokerFixture()
        clock = lambda: self.fixture.elapsed * 1000  # noqa: E731
        self.tracing = Tracing(self.spans.append, ratio, clock, lambda: self.fixture.now * 1000, lambda: 0.5)
        self.fixture.broker.trace(self.tracing)
        self.fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 1)

    def produce(self, context: str = "") -> None:
        headers = [(("traceparent", context.encode()),)] if context else None
        self.fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [b"v"], None, headers)


def test_a_span_lasts_until_its_records_are_committed() -> None:
    scene = Scene(0)
    scene.produce(SAMPLED)
    scene.fixture.pass_time(0.25)
    assert scene.spans == []
    scene.fixture.commit()
    (span,) = scene.spans
    assert (span.name, span.parent, span.error) == ("publish t", SAMPLED, "")
    assert span.end - span.start == 250_000_000


def test_a_commit_that_fails_is_an_error() -> None:
    scene = Scene(0)
    scene.fixture.commit()
    scene.fixture.break_disk()
    scene.produce(SAMPLED)
    scene.fixture.commit()
    assert [span.name for span in scene.spans] == ["publish t"] and scene.spans[0].error


@pytest.mark.parametrize(("ratio", "count"), [(0.0, 0), (0.4, 0), (0.6, 1), (1.0, 1)])
def test_commits_are_sampled_once_however_many_records_they_have(ratio: float, count: int) -> None:
    scene = Scene(ratio)
    for _ in range(5):
        scene.produce()
    scene.fixture.commit()
    assert [span.attributes["messaging.batch.message_count"] for span in scene.spans] == [5] * count


def test_there_are_only_so_many_in_a_second() -> None:
    scene = Scene(1)
    for _ in range(MAX_PER_SECOND + 7):
        scene.tracing.request("GET", "/", 200, 0, "")
    assert (len(scene.spans), scene.tracing.left_out) == (MAX_PER_SECOND, 7)
    scene.fixture.pass_time(1)
    scene.tracing.request("GET", "/", 503, 0, "")
    assert scene.spans[-1].error == "status 503"
