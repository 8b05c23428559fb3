"""Dead letters of a topic: `/topics/orders/dead-letters`: look at them, replay one or all, or purge them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.admin.paging import MAX_PAGE, Page, PageQuery, cut, number_of
from penstock.admin.record_view import HeaderView, text_of
from penstock.broker.broker import Broker
from penstock.broker.errors import InvalidArgument
from penstock.broker.names import DEAD_LETTERS
from penstock.broker.queues.dead_letter import DeadLetter
from penstock.broker.queues.dead_letters import LetterPage, Replayed
from penstock.doors.http.replies import HttpReply, Outcome, PendingHttpReply, after_commit, done, json_reply
from penstock.doors.http.router import Request, Route


class DeadLetterView(msgspec.Struct):
    """A record that could not be delivered, or does not fit its schema."""

    id: str
    offset: int  # among the dead letters
    topic: str  # where it came from
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
    letters: int  # offsets that are there; some of them may have been replayed


class LettersQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query parameters of a look at dead letters."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    after: Annotated[str, Meta(description="`next` of the page before.")] = ""


class ReplayedView(msgspec.Struct):
    """The place of a dead letter that was replayed."""

    partition: int
    offset: int


class DeadLetterRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._letters = broker.dead_letters

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


def _replayed(replayed: Replayed) -> PendingHttpReply:
    appended, partition = replayed
    return PendingHttpReply(appended.group, json_reply(ReplayedView(partition, appended.base_offsets[0])))


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
