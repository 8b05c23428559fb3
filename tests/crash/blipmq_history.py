"""What the clients of queues were told, and a proof that every message was dealt with as a queue promises.

Adds three kinds of operations to a `History`: "publish", "deliver" and "ack". A delivery is of one message to one
subscription; its `offset` is the delivery tag, its `group` the subscription. `QueueContents` is what is in the log in
the end, when every queue has run dry. Nothing here talks to a broker.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.crash.history import History, Operation, Outcome, Place, Violation


class QueueHistory(History):
    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[int, float] = {}  # by the moment of a delivery: when it was asked for, in s since 1970

    def deliver(self, client: str, place: Place, subscription: int, tag: int, message: str, asked: float) -> Operation:
        delivery = self.invoke(client, "deliver", place, (message,), offset=tag, group=str(subscription))
        self.asked[delivery.invoked] = asked
        return delivery


class Stored(NamedTuple):
    id: str
    offset: int
    at: float  # s since 1970


class Letter(NamedTuple):
    """A dead letter, by what its headers say."""

    id: str
    subscription: int
    offset: int  # of the message in its topic
    attempts: int


@dataclass(slots=True)
class QueueContents:
    """What was read back when all queues had run dry."""

    place: Place
    messages: Sequence[Stored]
    letters: Sequence[Letter]
    subscriptions: Sequence[int]  # all began before the first message
    attempts: int  # the limit
    ttl: float = float("inf")  # s
    left: dict[int, int] = field(default_factory=dict)  # by subscription: messages that still wait or are in flight


Key = tuple[str, str]  # subscription, message


def _by_key(history: History, kind: str) -> dict[Key, list[Operation]]:
    found: dict[Key, list[Operation]] = defaultdict(list)
    for operation in history.of(kind):
        found[operation.group, operation.ids[0]].append(operation)
    return found


def _letters(contents: QueueContents) -> Counter[Key]:
    return Counter((str(letter.subscription), letter.id) for letter in contents.letters)


def published_are_stored(history: QueueHistory, contents: QueueContents) -> Iterator[str]:
    """What was acknowledged by a PONG is in the log, once; what was refused is not; nothing else is."""
    times = Counter(message.id for message in contents.messages)
    sent = set()
    for operation in history.of("publish"):
        (message,) = operation.ids
        sent.add(message)
        if times[message] > 1:
            yield f"{message} is stored {times[message]} times"
        if operation.outcome is Outcome.ACKNOWLEDGED and not times[message]:
            yield f"{message} was acknowledged and is not stored"
        if operation.outcome is Outcome.REJECTED and times[message]:
            yield f"{message} was refused ({operation.error}) and is stored"
    for message in times:
        if message not in sent:
            yield f"nobody published {message}"


def stored_are_delivered(history: QueueHistory, contents: QueueContents) -> Iterator[str]:
    """Every message came to every subscription, or was given up there, or expired before anybody asked."""
    delivered, letters = _by_key(history, "deliver"), _letters(contents)
    for subscription in map(str, contents.subscriptions):
        for message in contents.messages:
            key = subscription, message.id
            if contents.ttl == float("inf") and key not in delivered and not letters[key]:
                yield f"{message.id} never came to subscription {subscription}"


def nothing_foreign_is_delivered(history: QueueHistory, contents: QueueContents) -> Iterator[str]:
    """Every delivery is of a stored message, with the tag of its place in the log."""
    at = {message.id: message.offset for message in contents.messages}
    first = min(at.values(), default=0)
    for operation in history.of("deliver"):
        (message,) = operation.ids
        if message not in at:
            yield f"subscription {operation.group} got {message}, which is not stored"
        elif operation.offset != at[message] - first + 1:
            yield f"subscription {operation.group} got {message}, the message at {at[message]}, as {operation.offset}"


def nothing_after_its_acknowledgement(history: QueueHistory, _: QueueContents) -> Iterator[str]:
    """After the PONG that follows an ACK, the message does not come again."""
    deliveries = _by_key(history, "deliver")
    for key, acks in _by_key(history, "ack").items():
        accepted = [ack.answered for ack in acks if ack.outcome is Outcome.ACKNOWLEDGED and ack.answered]
        if accepted and (late := [d for d in deliveries.get(key, ()) if d.invoked > min(accepted)]):
            yield f"subscription {key[0]} got {key[1]} {len(late)} times after its ACK was accepted"


def acknowledged_once(history: QueueHistory, _: QueueContents) -> Iterator[str]:
    for (subscription, message), acks in _by_key(history, "ack").items():
        accepted = sum(ack.outcome is Outcome.ACKNOWLEDGED for ack in acks)
        if accepted > 1:
            yield f"subscription {subscription}: {accepted} ACKs of {message} were accepted"


def attempts_are_limited(history: QueueHistory, contents: QueueContents) -> Iterator[str]:
    for (subscription, message), deliveries in _by_key(history, "deliver").items():
        if len(deliveries) > contents.attempts:
            yield f"subscription {subscription} got {message} {len(deliveries)} times; {contents.attempts} are allowed"


def nothing_after_its_time(history: QueueHistory, contents: QueueContents) -> Iterator[str]:
    """What was asked for when the message had expired did not get it."""
    stored = {message.id: message.at for message in contents.messages}
    for operation in history.of("deliver"):
        (message,) = operation.ids
        age = history.asked[operation.invoked] - stored.get(message, float("inf"))
        if age >= contents.ttl:
            yield f"subscription {operation.group} got {message} after {age:.3f} s; it lives {contents.ttl:g} s"


def letters_account_for_what_was_given_up(history: QueueHistory, contents: QueueContents) -> Iterator[str]:
    """A message that no ACK can have settled is a dead letter, once; one whose ACK was accepted is none."""
    acks, letters = _by_key(history, "ack"), _letters(contents)
    for subscription in map(str, contents.subscriptions):
        for message in contents.messages:
            key = subscription, message.id
            outcomes = {ack.outcome for ack in acks.get(key, ())}
            if letters[key] > 1:
                yield f"{message.id} is a dead letter of subscription {subscription} {letters[key]} times"
            if letters[key] and Outcome.ACKNOWLEDGED in outcomes:
                yield f"{message.id} was acknowledged by subscription {subscription}, and given up"
            lost = not letters[key] and outcomes <= {Outcome.REJECTED}
            if lost and contents.ttl == float("inf"):
                yield f"{message.id} was given up by subscription {subscription}, and is no dead letter"


def letters_tell_the_truth(_: QueueHistory, contents: QueueContents) -> Iterator[str]:
    at = {message.id: message.offset for message in contents.messages}
    for letter in contents.letters:
        if letter.subscription not in contents.subscriptions or at.get(letter.id) != letter.offset:
            yield f"a dead letter of nothing: {letter}"
        if letter.attempts != contents.attempts:
            yield f"{letter.id} was given up after {letter.attempts} attempts"


def queues_have_run_dry(_: QueueHistory, contents: QueueContents) -> Iterator[str]:
    for subscription, left in contents.left.items():
        if left:
            yield f"subscription {subscription} still holds {left} messages"


QUEUE_RULES = (
    published_are_stored,
    stored_are_delivered,
    nothing_foreign_is_delivered,
    nothing_after_its_acknowledgement,
    acknowledged_once,
    attempts_are_limited,
    nothing_after_its_time,
    letters_account_for_what_was_given_up,
    letters_tell_the_truth,
    queues_have_run_dry,
)


def check_queues(history: QueueHistory, contents: QueueContents) -> list[Violation]:
    return [Violation(rule.__name__, text) for rule in QUEUE_RULES for text in rule(history, contents)]
