"""Dead letters: list, replay and purge them."""

from __future__ import annotations

from typing import Final

from penstock.broker.errors import RecordUnsendable
from penstock.broker.queues.dead_letter import SUFFIX, DeadLetter
from penstock.broker.queues.dead_letters import LetterPage, Replayed
from penstock.doors.flymq.request_context import FlyMqContext
from penstock.doors.reply import OffloadedReply, Outcome, Reply
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec.replies import MAX_DLQ_MESSAGES, dlq_message_size

MAX_MESSAGES: Final = 10_000  # in one reply
MAX_REASON: Final = 1000  # characters; as MAX_ATTEMPTS, because clients that write dead letters choose the headers
MAX_ATTEMPTS: Final = 2**31 - 1


def fetch(context: FlyMqContext, request: m.FetchDlq) -> Outcome:
    def answer(page: LetterPage) -> Reply:
        found: list[m.DlqMessage] = []
        room = MAX_DLQ_MESSAGES
        for letter in page.letters:
            message = _message(context, request.topic, letter)
            room -= dlq_message_size(message)
            if room < 0:
                return Reply(m.DlqMessages(found, letter.offset))
            found.append(message)
        return Reply(m.DlqMessages(found, page.next))

    wanted = min(request.max_messages, MAX_MESSAGES)
    read = context.broker.dead_letters.fetch(
        context.identity, context.scope, request.topic, wanted, request.offset or 0
    )
    return OffloadedReply(context.broker, read, answer)


def _message(context: FlyMqContext, topic: str, letter: DeadLetter) -> m.DlqMessage:
    """A dead letter in a reply. One that fits no frame is listed without its value, with a notice: so it can be
    replayed, and the letters after it can be listed."""
    attempts = min(letter.attempts, MAX_ATTEMPTS)
    message = m.DlqMessage(letter.id, letter.value, letter.reason[:MAX_REASON], attempts)
    size = dlq_message_size(message)
    if size <= MAX_DLQ_MESSAGES:
        return message
    record = RecordUnsendable(letter.offset, len(letter.value), MAX_DLQ_MESSAGES - size + len(letter.value))
    context.broker.unsendable.note("flymq", context.peer, topic + SUFFIX, record)
    return m.DlqMessage(letter.id, b"", f"left out here, {record}: {letter.reason}"[:MAX_REASON], attempts)


def replay(context: FlyMqContext, request: m.ReplayDlq) -> Outcome:
    dead_letters = context.broker.dead_letters
    which = (request.message_id or "") if request.offset is None else request.offset

    def answer(replayed: Replayed) -> Reply:
        return Reply(m.Done(), replayed.appended.group)

    return OffloadedReply(
        context.broker, dead_letters.replay(context.identity, context.scope, request.topic, which), answer
    )


def purge(context: FlyMqContext, request: m.PurgeDlq) -> Reply:
    return Reply(m.Done(), context.broker.dead_letters.purge(context.identity, context.scope, request.topic))
