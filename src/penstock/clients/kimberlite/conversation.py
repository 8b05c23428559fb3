"""What is said on one connection, without a socket: which frame answers what, and what to do if it does not come.

Requests have ids, and replies come in any order. A request on its way is a `Call`; the `Conversation` keeps those that
are not answered, and hands pushes to the `Feed` of their subscription. `Attempts` is about several connections: which
questions are asked again on the next one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from penstock.clients._core.retry import RetryPolicy
from penstock.clients.kimberlite.errors import (
    AuthenticationFailed,
    BadReply,
    ConnectionFailed,
    KimberliteError,
    NotLeader,
    OutcomeUnknown,
    PipelineError,
    ReplyError,
    TimedOut,
    Unsendable,
    refusal,
)
from penstock.clients.kimberlite.feed import Feed
from penstock.clients.kimberlite.questions import How, Question, append, server_info
from penstock.clients.kimberlite.results import Appended
from penstock.clients.kimberlite.version import Version
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.encoding import Malformed


class _Pending:
    """Stands for an outcome that is not there yet."""

    def __repr__(self) -> str:
        return "PENDING"


PENDING: Final = _Pending()


class Call:
    """A question on its way. Its outcome is a result or a KimberliteError, or OSError if the connection was lost."""

    __slots__ = ("due", "feed", "on_end", "outcome", "question", "sent", "size")

    def __init__(self, question: Question[Any], feed: Feed | None = None) -> None:
        self.question = question
        self.feed = feed  # of a Subscribe: pushes may come in the same breath as its reply
        self.outcome: Any = PENDING
        self.on_end: Callable[[Call], None] | None = None
        self.sent = 0.0
        self.due = 0.0  # when it is given up
        self.size = 0  # bytes on the wire

    def end(self, outcome: Any) -> None:
        self.outcome = outcome
        if self.on_end is not None:
            self.on_end(self)


class Conversation:
    """The requests that wait for their replies on one connection. `now` is any clock that does not go back."""

    __slots__ = ("_feeds", "_ids", "_tenant", "_waiting", "_wire", "flying", "heard", "timeout", "version")

    def __init__(self, version: Version, tenant: int, timeout: float) -> None:
        self.version = version
        self.heard = 0.0  # when something came last
        self.flying = 0  # bytes of requests that wait for their replies
        self._wire = version.wire()
        self._tenant = tenant
        self.timeout = timeout
        self._ids = 0
        self._waiting: dict[int, Call] = {}
        self._feeds: dict[int, Feed] = {}

    def __len__(self) -> int:
        """How many replies the server owes us."""
        return len(self._waiting)

    @property
    def listening(self) -> bool:
        """Whether pushes may come."""
        return bool(self._feeds)

    def begin(self, call: Call, now: float) -> bytes:
        """What is to be sent. Raises Unsendable: then nothing has begun."""
        question = call.question
        tenant = self._tenant if question.tenant is None else question.tenant
        number = self._ids + 1
        request = self.version.fitted(question.request, question.audit)
        try:
            data = self._wire.request(number, tenant, request, question.audit)
        except (ValueError, TypeError, LookupError, struct.error) as error:  # a number too large, a text for bytes, …
            raise Unsendable(f"{question.name} cannot be sent in version {self.version.name}: {error}") from error
        self._ids = number
        call.sent = now
        call.due = now + (self.timeout if question.timeout is None else question.timeout)
        call.size = len(data)
        self.flying += call.size
        self._waiting[number] = call
        return data

    def feed(self, data: bytes, now: float) -> None:
        """What has come. Raises BadReply or ReplyError, after which nothing on this connection can be relied on."""
        self.heard = now
        wire = self._wire
        wire.feed(data)
        try:
            while (message := wire.next()) is not None:
                if type(message) is m.Response:
                    self._answer(message)
                else:
                    self._push(message.payload)
        except Malformed as error:
            raise BadReply(f"The server sent what cannot be read: {error}") from error

    def _answer(self, response: m.Response) -> None:
        call = self._waiting.pop(response.request_id, None)
        payload = response.payload
        if call is None:
            if isinstance(payload, m.ErrorResponse):  # about the connection as such
                raise refusal(payload.code, payload.message)
            raise BadReply(f"The server sent a reply to request {response.request_id}, which nobody made")
        self.flying -= call.size
        if call.outcome is not PENDING:  # it was given up
            if call.feed is not None:
                raise BadReply("The server made a subscription when nobody waited for it any more")
            return
        question = call.question
        if type(payload) is question.reply:
            if call.feed is not None:
                assert isinstance(payload, m.SubscribeResponse)
                if self.version.pushes:
                    self._feeds[payload.subscription_id] = call.feed
                call.feed.started(payload)
            try:
                outcome = question.take(payload)
            except KimberliteError as error:
                outcome = error
            call.end(outcome)
        elif isinstance(payload, m.ErrorResponse):
            call.end(refusal(payload.code, payload.message))
        else:
            wrong = BadReply(f"The server sent {type(payload).__name__} as the reply to a {question.name}")
            call.end(wrong)
            raise wrong

    def _push(self, payload: m.Message) -> None:
        if isinstance(payload, m.SubscriptionEvents):
            feed = self._feeds.get(payload.subscription_id)
            if feed is not None:  # else it was given up, and this had been sent before the server knew
                feed.push(payload)
        elif isinstance(payload, m.SubscriptionClosed):
            feed = self._feeds.pop(payload.subscription_id, None)
            if feed is not None:
                feed.ended(payload.reason)
        else:
            raise BadReply(f"The server pushed {type(payload).__name__}")

    def forget(self, feed: Feed) -> None:
        """Nobody wants what is pushed to this any more."""
        if feed.id is not None and self._feeds.get(feed.id) is feed:
            del self._feeds[feed.id]

    def due(self) -> float | None:
        """When to look whether a reply is overdue."""
        return min((call.due for call in self._waiting.values() if call.outcome is PENDING), default=None)

    def expire(self, now: float) -> None:
        """Give up what is overdue. Raises TimeoutError if the server has said nothing at all meanwhile: then the
        connection is as good as lost. Otherwise it stays, and a late reply will find nobody."""
        overdue = [call for call in self._waiting.values() if call.due <= now and call.outcome is PENDING]
        for call in overdue:
            call.end(TimedOut(f"No reply to {call.question.name} in {call.due - call.sent:g} seconds"))
        if any(self.heard <= call.sent for call in overdue):
            raise TimeoutError("the server has been silent for too long")

    def lose(self, reason: Exception) -> None:
        """No more replies will come."""
        waiting, self._waiting = self._waiting, {}
        feeds, self._feeds = self._feeds, {}
        self.flying = 0
        for call in waiting.values():
            if call.outcome is PENDING:
                call.end(reason)
        for feed in feeds.values():
            feed.lost()


# -- several connections


class Attempts:
    """Questions on their way to their outcomes, over as many connections as the retry policy allows.

    What was answered is not asked again, except for a single question that was refused for now. If the connection is
    lost, what is left is asked again if all of it may be carried out twice, and else is `OutcomeUnknown`."""

    def __init__(self, questions: Sequence[Question[Any]], retry: RetryPolicy) -> None:
        self.outcomes: list[Any] = [PENDING] * len(questions)
        self.leader: str | None = None  # where to ask next, if the last server told us
        self.elsewhere = False  # whether to ask another server in any case
        self._questions = questions
        self._retry = retry
        self._failed = 0  # attempts without a single answer, since the last one that had any
        self._doubtful = False  # whether something may have been carried out without our knowing

    @property
    def over(self) -> bool:
        return PENDING not in self.outcomes

    def next(self) -> list[tuple[int, Question[Any]]]:
        """What is to be asked now, and the place of its outcome."""
        return [(at, self._questions[at]) for at, outcome in enumerate(self.outcomes) if outcome is PENDING]

    def take(self, asked: Sequence[tuple[int, Call]]) -> float:
        """What has come of it. The answer is how many seconds to wait before the next attempt, if it is not over."""
        lost: Exception | None = None
        answers = 0
        for at, call in asked:
            outcome = call.outcome
            if isinstance(outcome, Exception) and not isinstance(outcome, KimberliteError):
                lost = outcome
            else:
                answers += 1
                self.outcomes[at] = self._judged(call.question, outcome)
        if lost is not None:
            return self._lost(lost, answers > 0)
        if len(asked) == 1 and isinstance(self.outcomes[asked[0][0]], ReplyError):
            return self._refused(*asked[0])
        return 0.0

    def unreachable(self, error: KimberliteError) -> None:
        """There is no connection to ask on. If nothing has been answered, that is all there is to say: it is raised."""
        if all(outcome is PENDING for outcome in self.outcomes):
            raise error
        self._settle(error)

    def _judged(self, question: Question[Any], outcome: Any) -> Any:
        """An answer to something that was asked before, with an unknown outcome, may speak of that."""
        if not self._doubtful or not isinstance(outcome, question.doubtful):
            return outcome
        unknown = OutcomeUnknown(f"The connection was lost, and asked again the server says: {outcome}")
        unknown.__cause__ = outcome
        return unknown

    def _lost(self, error: Exception, answered: bool) -> float:
        self._failed = 1 if answered else self._failed + 1
        left = [question for _, question in self.next()]
        failure: KimberliteError
        if not all(question.repeatable for question in left):
            failure = OutcomeUnknown(f"The connection was lost: {error}")
        elif self._failed < self._retry.attempts:
            self._doubtful = True
            return self._retry.delay(self._failed - 1)
        else:
            failure = ConnectionFailed(f"The connection was lost {self._failed} times: {error}")
        failure.__cause__ = error
        self._settle(failure)
        return 0.0

    def _refused(self, at: int, call: Call) -> float:
        error = self.outcomes[at]
        again = error.untouched or (error.retryable and call.question.repeatable)
        if not again or self._failed + 1 >= self._retry.attempts:
            return 0.0
        self._failed += 1
        self.outcomes[at] = PENDING
        if isinstance(error, NotLeader):
            self.leader, self.elsewhere = error.leader, True
            if self.leader is not None:
                return 0.0
        return self._retry.delay(self._failed - 1)

    def _settle(self, error: KimberliteError) -> None:
        self.outcomes = [error if outcome is PENDING else outcome for outcome in self.outcomes]


def handshake(version: Version, token: str | None) -> Question[None]:
    """The first question on a connection, and one that can be asked again to see whether it still holds."""

    def take(reply: m.HandshakeResponse) -> None:
        if reply.server_version != version.number:
            raise BadReply(f"The server answered in version {reply.server_version}, not {version.number}")
        if not reply.authenticated:
            what = "a token is needed" if token is None else "the token was not accepted"
            raise AuthenticationFailed(m.ErrorCode.AUTHENTICATION_FAILED, f"not authenticated: {what}")

    return Question(m.Handshake(version.number, token), m.HandshakeResponse, take, repeatable=True)


def probe(version: Version, token: Callable[[], str | None]) -> Question[Any]:
    """A question that any server answers at once, to see whether it is there."""
    return server_info() if version.pushes else handshake(version, token())


def failed(call: Call) -> bool:
    """Whether there was no answer. To be refused is one."""
    return isinstance(call.outcome, Exception) and not isinstance(call.outcome, ReplyError)


def begun(calls: Sequence[Call], begin: Callable[[Call], bytes]) -> list[bytes]:
    """What is to be sent of these. Those that cannot be sent have their outcome."""
    data = []
    for call in calls:
        try:
            data.append(begin(call))
        except Unsendable as error:
            call.end(error)
    return data


def result_of(outcome: Any) -> Any:
    """The outcome, if it is a result."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


# -- many batches


def appends(
    stream_id: int, batches: Iterable[Sequence[bytes]], start: int | None, how: How
) -> Iterator[Question[Appended]]:
    """One append for each batch, each expecting the stream to end where the one before it leaves it."""
    for events in batches:
        yield append(stream_id, events, start, **how)
        if start is not None:
            start += len(events)


class Flight:
    """Calls that go out one after the other without waiting, and whether to go on with that."""

    __slots__ = ("_bytes", "_window", "aloft", "calls", "failed")

    def __init__(self, window: int, window_bytes: int) -> None:
        if window < 1 or window_bytes < 1:
            raise ValueError("the window must be at least 1")
        self.calls: list[Call] = []
        self.aloft = 0  # of them, those without an outcome
        self.failed = False
        self._window = window
        self._bytes = window_bytes

    def add(self, question: Question[Any]) -> Call:
        call = Call(question)
        call.on_end = self._ended
        self.calls.append(call)
        self.aloft += 1
        return call

    def _ended(self, call: Call) -> None:
        self.aloft -= 1
        if isinstance(call.outcome, Exception):
            self.failed = True

    def full(self, conversation: Conversation) -> bool:
        return len(conversation) >= self._window or conversation.flying >= self._bytes

    def results(self) -> list[Any]:
        """What has come of all. PipelineError if that is not a result for each."""
        outcomes = [call.outcome for call in self.calls]
        if self.failed:
            raise PipelineError([_unknown(outcome) for outcome in outcomes])
        return outcomes


def _unknown(outcome: Any) -> Any:
    """An outcome as the caller sees it, where nothing is asked again."""
    if not isinstance(outcome, Exception) or isinstance(outcome, KimberliteError):
        return outcome
    unknown = OutcomeUnknown(f"The connection was lost: {outcome}")
    unknown.__cause__ = outcome
    return unknown
