"""`auth`: the client's identity on this stream. It must be the first frame of every stream."""

from __future__ import annotations

from penstock.broker.errors import BrokerError
from penstock.broker.names import DEFAULT_SCOPE, Scope, check_scope
from penstock.broker.security.access import Identity
from penstock.doors.felix.errors import UNAUTHENTICATED, RequestRefused, advice
from penstock.doors.felix.request_context import FelixContext
from penstock.doors.felix.states import State
from penstock.doors.reply import Reply
from penstock.wire.felix.codec.dialects import Original
from penstock.wire.felix.messages import Auth


def auth(context: FelixContext, request: Auth) -> Reply:
    tenant = request.tenant_id
    identity = _bearer(context, request.token, tenant)
    try:
        check_scope(Scope(tenant, DEFAULT_SCOPE.namespace))
        context.connection.enter(tenant)
    except BrokerError as error:
        raise RequestRefused(f"auth failed: {error}", ends=True, advice=advice(error)) from None
    context.identity, context.tenant, context.flags = identity, tenant, request.client_flags
    context.features = request.client_features or 0
    context.dialect = Original(request.client_flags, request.client_features, request.client_features_hi)
    context.state = State.AUTHENTICATED
    return Reply(context.dialect.authenticated())


def _bearer(context: FelixContext, token: str, tenant: str) -> Identity:
    """The identity of a token or an API key. With security off everybody is accepted, and bound to the tenant in the
    request."""
    peer = context.peer
    if not context.broker.access.enforced:
        return context.identity._replace(tenant=tenant, peer=peer)
    verdict = context.broker.keys.authenticate(token, peer, tenant=tenant)
    if verdict == "locked":
        text = "auth failed: too many wrong tokens came from here, try again later"
        raise RequestRefused(text, ends=True, advice=UNAUTHENTICATED)
    if not isinstance(verdict, Identity) or verdict.tenant != tenant:  # an identity without a tenant is not valid here
        raise RequestRefused("auth failed", ends=True, advice=UNAUTHENTICATED)
    return verdict
