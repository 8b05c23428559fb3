"""Dead letters of a topic, `/topics/orders/dead-letters`: list, replay one or all, or purge them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from penstock.admin.filters import Condition, RecordFilter
from penstock.admin.jobs import Job, Jobs, JobView, Steps
from penstock.admin.paging import MAX_PAGE, Page, PageQuery, cut, number_of
from penstock.admin.record_scan import fits
from penstock.admin.record_view import HeaderView, RecordView, text_of
from penstock.admin.records import record_filter
from penstock.broker.broker import Broker
from penstock.broker.errors import DeadLetterNotFound, InvalidArgument, RecordRejected, RecordTooLarge
from penstock.broker.names import DEAD_LETTERS
from penstock.broker.queues.dead_letter import DeadLetter
from penstock.broker.queues.dead_letters import LetterPage, Replayed
from penstock.broker.runtime.executor import Deferred
from penstock.broker.security.access import Permission
from penstock.doors.http.replies import HttpReply, Outcome, PendingHttpReply, after_commit, done, json_reply
from penstock.doors.http.router import Request, Route
from penstock.log.engine import CommitGroup

LETTERS_AT_ONCE: Final = 256  # in one step of a job


class DeadLetterView(msgspec.Struct):
    """A record that could not be delivered, or does not match its schema."""

    id: str
    offset: int  # among the dead letters
    topic: str  # from which it came
    partition: int | None
    original_offset: int | None  # null: it was never accepted
    key: bytes | None  # in base64
    key_text: str | None
    value: bytes  # in base64
    value_text: str | None
    headers: list[HeaderView]
    reason: str
    attempts: int
    stored: int | None  # µs since 1970
    given_up: int  # µs since 1970


class DeadLetterTopic(msgspec.Struct):
    """A topic that has, or had, dead letters."""

    topic: str
    letters: int  # retained offsets; some may have been replayed


class LettersQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query parameters for listing dead letters."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    after: Annotated[str, Meta(description="`next` of the page before.")] = ""


class ReplayedView(msgspec.Struct):
    """The partition and offset of a replayed dead letter."""

    partition: int
    offset: int


class LetterSelection(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Conditions on dead letters, all of which must hold; without any, all letters. In `where`, `offset` is the offset
    among the dead letters, and `timestamp` the time when the record was given up."""

    key: str = ""
    value: str = ""
    header: Annotated[list[str], Meta(max_length=16)] = []
    text: str = ""
    path: str = ""
    where: str = ""
    reason: str = ""  # part of the reason why it is one
    letters: Annotated[list[int], Meta(max_length=10_000)] | None = None  # offsets among the dead letters
    limit: Annotated[int, Meta(ge=1)] | None = None

    def condition(self) -> Condition:
        return Condition(self.key, self.value, tuple(self.header), self.text, self.path, self.where)


class LettersDone(msgspec.Struct):
    """The outcome of a job on dead letters."""

    done: int
    refused: int = 0  # rejected by their topic: they remain dead letters
    reason: str = ""  # of the first of these


class DeadLetterRoutes:
    def __init__(self, broker: Broker, jobs: Jobs) -> None:
        self._broker = broker
        self._letters = broker.dead_letters
        self._jobs = jobs

    def routes(self) -> tuple[Route, ...]:
        path = "/api/v1/topics/{topic}/dead-letters"
        return (
            Route(
                *("GET", "/api/v1/dead-letters", self.topics, "Topics that have dead letters."),
                query=PageQuery,
                reply=Page[DeadLetterTopic],
            ),
            Route(
                *("GET", path, self.look, "Dead letters of a topic, oldest first."),
                query=LettersQuery,
                reply=Page[DeadLetterView],
            ),
            Route(
                *("POST", f"{path}/{{letter}}/replay", self.replay, "Append a dead letter to its topic again."),
                reply=ReplayedView,
                audit="dlq.replay",
            ),
            Route("DELETE", path, self.purge, "Delete all dead letters of a topic.", audit="dlq.purge"),
            Route("DELETE", f"{path}/{{letter}}", self.delete, "Delete a dead letter.", audit="dlq.purge"),
            Route(
                *("POST", f"{path}/replay", self.replay_many, "Append dead letters to their topic again, as a job."),
                body=LetterSelection,
                reply=JobView,
                status=202,
                audit="dlq.replay",
            ),
            Route(
                *("POST", f"{path}/purge", self.purge_many, "Delete the dead letters that fit, as a job."),
                body=LetterSelection,
                reply=JobView,
                status=202,
                audit="dlq.purge",
            ),
        )

    def topics(self, request: Request) -> Outcome:
        names = [
            topic.name
            for topic in self._broker.topics.list(request.identity, request.scope)
            if topic.name.endswith(DEAD_LETTERS)
        ]
        found = cut(names, lambda name: name, request.query)
        bounds = self._broker.topics.bounds(request.identity, request.scope, found.items)
        views = [
            DeadLetterTopic(name.removesuffix(DEAD_LETTERS), sum(end - start for start, end in bounds.get(name, ())))
            for name in found.items
        ]
        return after_commit(self._broker.pending_commit, json_reply(Page(views, found.next)))

    def look(self, request: Request) -> Outcome:
        query: LettersQuery = request.query
        after = number_of(query.after or "0")
        if after is None:
            raise InvalidArgument("'after' is not the 'next' of a page")
        work = self._letters.fetch(request.identity, request.scope, request.names["topic"], query.limit, after)
        return work.then(self._page)

    def _page(self, page: LetterPage) -> HttpReply | PendingHttpReply:
        following = None if page.next is None else str(page.next)
        reply = json_reply(Page([_view(letter) for letter in page.letters], following))
        return after_commit(self._broker.pending_commit, reply)

    def replay(self, request: Request) -> Outcome:
        letter = request.names["letter"]
        number = number_of(letter)
        work = self._letters.replay(
            request.identity, request.scope, request.names["topic"], letter if number is None else number
        )
        return work.then(_replayed)

    def purge(self, request: Request) -> Outcome:
        return done(self._letters.purge(request.identity, request.scope, request.names["topic"]))

    def delete(self, request: Request) -> Outcome:
        number = number_of(request.names["letter"])
        offsets = () if number is None else (number,)
        group = self._letters.discard(request.identity, request.scope, request.names["topic"], offsets)
        if group is None:
            raise DeadLetterNotFound(request.names["letter"])
        return done(group)

    # -- several at a time

    def replay_many(self, request: Request) -> Outcome:
        identity, scope, topic = request.identity, request.scope, request.names["topic"]
        self._broker.access.require(identity, Permission.READ, scope, topic + DEAD_LETTERS)
        self._broker.access.require(identity, Permission.WRITE, scope, topic)
        return self._begin(request, "dlq.replay", self._replay)

    def purge_many(self, request: Request) -> Outcome:
        identity, scope, topic = request.identity, request.scope, request.names["topic"]
        self._broker.access.require(identity, Permission.READ, scope, topic + DEAD_LETTERS)
        self._broker.access.require(identity, Permission.DELETE, scope, topic + DEAD_LETTERS)
        return self._begin(request, "dlq.purge", self._purge)

    def _begin(self, request: Request, kind: str, act: Callable[..., Steps]) -> Outcome:
        body: LetterSelection = request.body
        topic = request.names["topic"]

        def begin(matches: RecordFilter | None) -> Outcome:
            job = self._jobs.start(
                *(request.identity, kind, request.scope, topic), lambda job: self._through(job, body, matches, act)
            )
            return after_commit(self._broker.pending_commit, json_reply(job.view, 202))

        outcome: Outcome = record_filter(self._broker, body.condition(), begin)
        return outcome

    def _through(
        self, job: Job, body: LetterSelection, matches: RecordFilter | None, act: Callable[..., Steps]
    ) -> Steps:
        """Process all matching letters that existed at the start, a page at a time. It waits only for the last commit
        of each page, which follows the earlier ones."""
        identity, scope, topic = job.identity, job.scope, job.view.resource
        wanted = None if body.letters is None else frozenset(body.letters)
        bounds = self._broker.topics.bounds(identity, scope, [topic + DEAD_LETTERS]).get(topic + DEAD_LETTERS, ())
        end = sum(each.high_watermark for each in bounds[:1])
        after = sum(each.start for each in bounds[:1])
        job.progress.total, first, outcome = end - after, after, LettersDone(0)
        following: int | None = after
        while following is not None and following < end and outcome.done != body.limit:
            page: LetterPage = yield self._letters.fetch(identity, scope, topic, LETTERS_AT_ONCE, following)
            fitting: list[DeadLetter] = yield Deferred(
                partial(_fitting, page.letters, body.reason, wanted, end, matches),
                lambda found: found,
                executor=self._broker.scan_executor,
            )
            if body.limit is not None:
                fitting = fitting[: body.limit - outcome.done]
            if fitting and (group := (yield from act(job, fitting, outcome))) is not None:
                yield group
            following = page.next
            job.progress.done = (end if following is None else min(following, end)) - first
        return outcome

    def _replay(self, job: Job, letters: list[DeadLetter], outcome: LettersDone) -> Steps:
        group: CommitGroup | None = None
        for letter in letters:
            try:
                replayed: Replayed = yield self._letters.replay(
                    job.identity, job.scope, job.view.resource, letter.offset
                )
            except DeadLetterNotFound:
                continue  # replayed concurrently
            except (RecordRejected, RecordTooLarge) as error:
                outcome.refused += 1
                outcome.reason = outcome.reason or str(error)
                continue
            outcome.done += 1
            group = replayed.appended.group
        return group

    def _purge(self, job: Job, letters: list[DeadLetter], outcome: LettersDone) -> Steps:
        offsets = [letter.offset for letter in letters]
        group = self._letters.discard(job.identity, job.scope, job.view.resource, offsets)
        outcome.done += len(offsets) if group is not None else 0
        return group
        yield  # a generator that waits for nothing


def _replayed(replayed: Replayed) -> PendingHttpReply:
    appended, partition = replayed
    return PendingHttpReply(appended.group, json_reply(ReplayedView(partition, appended.base_offsets[0])))


def _fitting(
    letters: list[DeadLetter], reason: str, wanted: frozenset[int] | None, end: int, matches: RecordFilter | None
) -> list[DeadLetter]:
    """The letters that match. Any thread."""
    return [
        letter
        for letter in letters
        if letter.offset < end
        and (wanted is None or letter.offset in wanted)
        and reason.lower() in letter.reason.lower()
        and fits(matches, _as_record(letter))
    ]


def _as_record(letter: DeadLetter) -> RecordView:
    """A letter as a record, for the conditions."""
    key, value = letter.key, letter.value
    headers = [HeaderView(name, held, text_of(held)) for name, held in letter.headers]
    place = (letter.partition or 0, letter.offset, letter.given_up, 0)
    return RecordView(*place, key, text_of(key), value, text_of(value), headers, None, None)


def _view(letter: DeadLetter) -> DeadLetterView:
    return DeadLetterView(
        letter.id,
        letter.offset,
        letter.topic,
        letter.partition,
        letter.original_offset,
        letter.key,
        text_of(letter.key),
        letter.value,
        text_of(letter.value),
        [HeaderView(name, value, text_of(value)) for name, value in letter.headers],
        letter.reason,
        letter.attempts,
        letter.stored,
        letter.given_up,
    )
