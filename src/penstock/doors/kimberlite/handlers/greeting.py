"""The handshake: establishes the identity of the client. All other requests require it."""

from __future__ import annotations

from typing import Final

from penstock.broker.security.access import Identity
from penstock.doors.kimberlite.errors import RequestRefused
from penstock.doors.kimberlite.request_context import KimberliteContext
from penstock.doors.reply import Reply
from penstock.wire.kimberlite import messages as m

CAPABILITIES: Final = ["query", "append", "subscribe", "query_at", "sync"]


def handshake(context: KimberliteContext, request: m.Handshake) -> Reply:
    """An invalid token is an error. Without a token the response is not `authenticated`, and the connection has no
    access if security is on: the original's clients ignore that flag."""
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
    """The identity of a token or an API key."""
    verdict = context.broker.keys.authenticate(token, context.peer)
    if isinstance(verdict, Identity):
        return verdict
    text = "invalid or expired token" if verdict is None else "too many wrong tokens came from here: try again later"
    raise RequestRefused(m.ErrorCode.AUTHENTICATION_FAILED, text)
