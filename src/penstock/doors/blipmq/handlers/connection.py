"""Frames about the connection itself: HELLO, AUTH and PING; and NACK, which releases a delivery."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from penstock.broker.errors import AccessDenied, QueueNotFound
from penstock.broker.security.access import Identity
from penstock.broker.security.key import Verdict
from penstock.broker.security.users import LoginRefusal
from penstock.doors.blipmq.request_context import SCOPE, BlipMqContext
from penstock.doors.reply import COMMITTED, OffloadedReply, Outcome, Reply
from penstock.log.engine import CommitGroup
from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f


def handshake(context: BlipMqContext, frames: Sequence[f.Frame]) -> Outcome:
    """HELLO, AUTH, and every frame that arrives before them, or that a client may not send."""
    step = context.handshake
    if (credentials := step.credentials(frames[0])) is not None:
        return _login(context, frames[0][1], *credentials)
    reply = step.step(frames[0]) or b""
    context.version = step.version
    context.identity = step.identity or context.identity
    return Reply(reply, COMMITTED)


def _login(context: BlipMqContext, correlation: int, username: str, password: str) -> Outcome:
    """AUTH with a user's name and password: slow, because the password is hashed."""

    def answer(verdict: Identity | LoginRefusal) -> Reply:
        accepted: Verdict = None
        if isinstance(verdict, Identity):
            context.count_connection(verdict)
            context.identity = accepted = verdict
        elif verdict is LoginRefusal.LOCKED:
            accepted = "locked"
        return Reply(context.handshake.conclude(correlation, accepted), COMMITTED)

    work = context.broker.users.login(SCOPE.tenant, username, password, context.peer)
    return OffloadedReply(context.broker, work, answer)


def release(context: BlipMqContext, frames: Sequence[f.Frame]) -> Reply:
    """NACK from a client: release a delivery for an immediate retry. As in the original, malformed requests and
    deliveries that are no longer in flight are ignored."""
    _, tag, payload = frames[0]
    subscription = codec.decode_subscription_id(payload)
    group: CommitGroup = COMMITTED
    if subscription:
        with contextlib.suppress(QueueNotFound, AccessDenied):
            group = context.broker.queues.release(context.identity, subscription, [tag]) or COMMITTED
    return Reply(b"", group)


def ping(_context: BlipMqContext, frames: Sequence[f.Frame]) -> Reply:
    return Reply(codec.encode_pong(frames[0][1]), COMMITTED)
