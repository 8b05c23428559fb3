"""The handshake: who the client is. Everything else waits for it."""

from __future__ import annotations

from typing import Final

from penstock.broker.security.access import Identity
from penstock.doors.kimberlite.errors import RequestRefused
from penstock.doors.kimberlite.request_context import KimberliteContext
from penstock.doors.reply import Reply
from penstock.wire.kimberlite import messages as m

CAPABILITIES: Final = ["query", "append", "subscribe", "query_at", "sync"]


def handshake(context: KimberliteContext, request: m.Handshake) -> Reply:
    """A token that is not good is an error. None at all is told as such, and leaves a connection that may do nothing
    where security is on: the original's clients do not look at `authenticated`."""
    if request.client_version != context.version:
        text = f"unsupported client version: {request.client_version}, server is {context.version}"
        raise RequestRefused(m.ErrorCode.INVALID_REQUEST, text)
    identity = context.identity
    if context.broker.access.enforced:
        if not request.auth_token:
            return Reply(m.HandshakeResponse(context.version, context.greeted is not None, CAPABILITIES))
        identity = _bearer(context, request.auth_token)
        context.check_tenant(identity)
    context.greet(identity)
    context.broker.queries.expect()
    return Reply(m.HandshakeResponse(context.version, True, CAPABILITIES))


def _bearer(context: KimberliteContext, token: str) -> Identity:
    """Whose token, or API key, it is."""
    verdict = context.broker.keys.authenticate(token, context.peer)
    if isinstance(verdict, Identity):
        return verdict
    text = "invalid or expired token" if verdict is None else "too many wrong tokens came from here: try again later"
    raise RequestRefused(m.ErrorCode.AUTHENTICATION_FAILED, text)
