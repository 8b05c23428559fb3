"""Consumer groups: `/groups`, `/groups/billing/orders` for a group in one topic, with its lag, and its offsets."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.admin.paging import Page, PageQuery, cut
from penstock.broker.broker import Broker
from penstock.broker.errors import InvalidArgument
from penstock.broker.groups import group as rules
from penstock.broker.groups.group import GroupView
from penstock.broker.runtime.executor import Deferred
from penstock.doors.http.replies import HttpReply, Outcome, PendingHttpReply, after_commit, done, json_reply
from penstock.doors.http.router import Request, Route
from penstock.log.engine import CommitGroup


class PartitionLag(msgspec.Struct):
    """A group's offset and lag in one partition."""

    partition: int
    committed: int | None  # its next offset; null: none
    end: int  # the offset of the next record
    lag: int  # records not read yet


class GroupSummary(msgspec.Struct):
    """A group in one topic. A group in two topics is listed twice."""

    group: str
    topic: str
    members: list[str]
    lag: int  # records, of all partitions
    partitions: list[PartitionLag]


class OffsetReset(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The new offsets of a group: one of `to`, `offset` and `time`."""

    to: Literal["earliest", "latest"] | None = None
    offset: Annotated[int, Meta(ge=0)] | None = None
    time: Annotated[int, Meta(ge=0, description="µs since 1970: the first record that is not older.")] | None = None
    partition: Annotated[int, Meta(ge=0)] | None = None  # null: all
    dry_run: bool = False  # only report the effect


class OffsetMove(msgspec.Struct):
    """A group's offset in one partition, before and after."""

    partition: int
    before: int | None
    after: int


class OffsetMoves(msgspec.Struct):
    """Offset changes of a reset, done or simulated."""

    moves: list[OffsetMove]
    done: bool


class GroupRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._groups = broker.groups

    def routes(self) -> tuple[Route, ...]:
        path, one = "/api/v1/groups", "/api/v1/groups/{group}/{topic}"
        return (
            Route("GET", path, self.list, "Groups with their lag.", query=PageQuery, reply=Page[GroupSummary]),
            Route("GET", one, self.get, "One group in one topic.", reply=GroupSummary),
            Route(
                *("POST", f"{one}/offsets", self.reset, "Move a group to other offsets."),
                body=OffsetReset,
                reply=OffsetMoves,
                audit="group.reset",
            ),
            Route("DELETE", one, self.delete, "Forget a group's offsets in a topic.", audit="group.delete"),
        )

    def list(self, request: Request) -> Outcome:
        views = self._groups.list(request.identity, request.scope)
        found = cut(views, lambda view: f"{view.group} {view.topic}", request.query)
        page = Page([self._summary(request, view) for view in found.items], found.next)
        return after_commit(self._broker.pending_commit, json_reply(page))

    def get(self, request: Request) -> Outcome:
        group, topic = request.names["group"], request.names["topic"]
        view = self._groups.describe(request.identity, request.scope, group, topic)
        return after_commit(self._broker.pending_commit, json_reply(self._summary(request, view)))

    def delete(self, request: Request) -> Outcome:
        return done(
            self._groups.delete(request.identity, request.scope, request.names["group"], request.names["topic"])
        )

    def reset(self, request: Request) -> Outcome:
        body: OffsetReset = request.body
        if sum(value is not None for value in (body.to, body.offset, body.time)) != 1:
            raise InvalidArgument("give one of 'to', 'offset' and 'time'")
        topic = request.names["topic"]
        count = len(self._broker.topics.bounds(request.identity, request.scope, [topic]).get(topic, ()))
        partitions = range(count) if body.partition is None else (body.partition,)
        if body.time is None:
            return self._move(request, {partition: self._target(request, partition) for partition in partitions})
        reads = {
            partition: self._broker.topics.offset_at(request.identity, request.scope, topic, partition, body.time)
            for partition in partitions
        }

        def look() -> None:
            for read in reads.values():
                read.run()

        return Deferred(
            look, lambda _: self._move(request, {partition: read.finish() for partition, read in reads.items()})
        )

    def _target(self, request: Request, partition: int) -> int:
        body: OffsetReset = request.body
        bounds = self._broker.topics.partition_bounds(
            request.identity, request.scope, request.names["topic"], partition
        )
        if body.offset is not None:
            return body.offset
        return bounds.start if body.to == "earliest" else bounds.high_watermark

    def _move(self, request: Request, targets: dict[int, int]) -> HttpReply | PendingHttpReply:
        identity, scope = request.identity, request.scope
        group, topic = request.names["group"], request.names["topic"]
        moves = [
            OffsetMove(partition, self._groups.committed(identity, scope, group, topic, partition), offset)
            for partition, offset in targets.items()
        ]
        last: CommitGroup | None = None
        if not request.body.dry_run:
            for move in moves:
                _, last = self._groups.reset(identity, scope, group, topic, move.partition, move.after)
        reply = json_reply(OffsetMoves(moves, not request.body.dry_run))
        return after_commit(last or self._broker.pending_commit, reply)

    def _summary(self, request: Request, view: GroupView) -> GroupSummary:
        identity, scope = request.identity, request.scope
        bounds = self._broker.topics.bounds(identity, scope, [view.topic]).get(view.topic, ())
        partitions = [
            PartitionLag(partition, *rules.lag(view.offsets.get(partition), each))
            for partition, each in enumerate(bounds)
        ]
        return GroupSummary(
            view.group, view.topic, list(view.members), sum(each.lag for each in partitions), partitions
        )
