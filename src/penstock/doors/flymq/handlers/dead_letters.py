"""Dead letters: looking at them, giving them another chance, dropping them."""

from __future__ import annotations

from typing import Final

from penstock.broker.queues.dead_letters import LetterPage, Replayed
from penstock.doors.flymq.request_context import SCOPE, FlyMqContext
from penstock.doors.reply import OffloadedReply, Outcome, Reply
from penstock.wire.flymq import messages as m

MAX_MESSAGES: Final = 10_000  # of one reply
MAX_REASON: Final = 1000  # characters; as MAX_ATTEMPTS, because whoever may write dead letters may make them up
MAX_ATTEMPTS: Final = 2**31 - 1


def fetch(context: FlyMqContext, request: m.FetchDlq) -> Outcome:
    def answer(page: LetterPage) -> Reply:
        found = [
            m.DlqMessage(letter.id, letter.value, letter.reason[:MAX_REASON], min(letter.attempts, MAX_ATTEMPTS))
            for letter in page.letters
        ]
        return Reply(m.DlqMessages(found))

    wanted = min(request.max_messages, MAX_MESSAGES)
    return OffloadedReply(
        context.broker, context.broker.dead_letters.fetch(context.identity, SCOPE, request.topic, wanted), answer
    )


def replay(context: FlyMqContext, request: m.ReplayDlq) -> Outcome:
    dead_letters = context.broker.dead_letters
    which = (request.message_id or "") if request.offset is None else request.offset

    def answer(replayed: Replayed) -> Reply:
        return Reply(m.Done(), replayed.appended.group)

    return OffloadedReply(context.broker, dead_letters.replay(context.identity, SCOPE, request.topic, which), answer)


def purge(context: FlyMqContext, request: m.PurgeDlq) -> Reply:
    return Reply(m.Done(), context.broker.dead_letters.purge(context.identity, SCOPE, request.topic))
