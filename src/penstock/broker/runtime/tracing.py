"""Tracing: spans of the broker's work, passed to an exporter. Off without an exporter (`server/telemetry`).

There is never a span per record or message. Turns of connections, records that were committed together and HTTP
requests are sampled. A produce request whose records carry the `traceparent` of a sampled trace has a span in that
trace. The number of spans per second is limited; the excess is dropped and counted.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.broker.names import Scope
from penstock.broker.runtime.turns import TurnOwner
from penstock.log.batch import Headers
from penstock.log.engine import CommitGroup, GroupState

TRACEPARENT: Final = "traceparent"
MAX_PER_SECOND: Final = 200  # spans; each costs about 0.1 ms
MAX_LOOKED_AT: Final = 16  # records of a request that are searched for a trace context
_SECOND: Final = 1_000_000_000

_CONTEXT: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-(?P<flags>[0-9a-f]{2})")


Attributes: TypeAlias = Mapping[str, str | int]


class Span(NamedTuple):
    """A piece of work. Times are ns since 1970."""

    name: str
    start: int
    end: int
    attributes: Attributes
    parent: str = ""  # in the format of `traceparent`; empty: the span begins a new trace
    error: str = ""


class Tracing:
    """Makes spans. `timer` is the broker's, in ns; `wall` is the wall clock, in ns since 1970."""

    def __init__(
        self,
        export: Callable[[Span], None],
        ratio: float,
        timer: Callable[[], int],
        wall: Callable[[], int],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._export = export
        self._ratio = ratio
        self._timer = timer
        self._wall = wall
        self._chance = chance
        self._second = 0
        self._made = 0  # in this second
        self.left_out = 0

    def sampled(self) -> bool:
        """Whether to sample something that belongs to no trace."""
        return self._chance() < self._ratio

    def turn(self, nanoseconds: int, owner: TurnOwner) -> None:
        """A connection or job has used this much time in a turn."""
        if self.sampled():
            work = owner.describe_work()
            door, kind = work.get("door", ""), work.get("request", "")
            names = {f"penstock.{name}": value for name, value in work.items() if value}
            self._span(f"{door} {kind}".strip() or "turn", self._timer() - nanoseconds, names)

    def committed(self, door: str, messages: int, size: int, started: int, group: CommitGroup) -> None:
        """Records that arrived through a door were committed together, or failed."""
        if self.sampled():
            attributes: Attributes = {
                "penstock.door": door,
                "messaging.batch.message_count": messages,
                "penstock.bytes": size,
            }
            self._span(f"{door} commit".strip(), started, attributes, error=_error(group))

    def produced(
        self, scope: Scope, topic: str, headers: Sequence[Headers], count: int, started: int, group: CommitGroup
    ) -> None:
        """A produce request, whose records may carry a trace context."""
        parent = context_of(headers)
        if not parent:
            return
        attributes: Attributes = {
            "messaging.system": "penstock",
            "messaging.operation.type": "publish",
            "messaging.destination.name": topic,
            "messaging.batch.message_count": count,
            "penstock.tenant": scope.tenant,
            "penstock.namespace": scope.namespace,
        }
        group.on_done(lambda done: self._span(f"publish {topic}", started, attributes, parent, _error(done)))

    def request(self, method: str, path: str, status: int, started: int, parent: str) -> None:
        """An HTTP request was answered."""
        parent = parent if is_sampled(parent) else ""
        if parent or self.sampled():
            attributes: Attributes = {
                "http.request.method": method,
                "url.path": path,
                "http.response.status_code": status,
            }
            self._span(f"HTTP {method}", started, attributes, parent, f"status {status}" if status >= 500 else "")

    def _span(self, name: str, started: int, attributes: Attributes, parent: str = "", error: str = "") -> None:
        now, wall = self._timer(), self._wall()
        if now - self._second >= _SECOND:
            self._second, self._made = now, 0
        if self._made >= MAX_PER_SECOND:
            self.left_out += 1
            return
        self._made += 1
        self._export(Span(name, wall - (now - started), wall, attributes, parent, error))


def context_of(headers: Sequence[Headers]) -> str:
    """The context of a sampled trace in the headers of the first records; empty if there is none."""
    for of_record in headers[:MAX_LOOKED_AT]:
        for name, value in of_record:
            if name.lower() == TRACEPARENT and len(value) < 64 and is_sampled(text := value.decode("latin-1")):
                return text
    return ""


def is_sampled(text: str) -> bool:
    """Whether this is a valid trace context with the sampled flag."""
    found = _CONTEXT.fullmatch(text)
    return found is not None and int(found["flags"], 16) & 1 == 1


def _error(group: CommitGroup) -> str:
    return str(group.error) if group.state is GroupState.FAILED else ""
