"""`auth`: who the client is, on this stream. Every stream says it anew, as its first frame."""

from __future__ import annotations

from penstock.broker.errors import BrokerError
from penstock.broker.names import DEFAULT_SCOPE, Scope, check_scope
from penstock.broker.security.access import Identity
from penstock.doors.felix.errors import RequestRefused
from penstock.doors.felix.request_context import RequestContext
from penstock.doors.reply import Reply
from penstock.wire.felix.messages import Auth


def auth(call: RequestContext, request: Auth) -> Reply:
    if call.tenant is not None:
        raise RequestRefused("auth already established", ends=True)
    tenant = request.tenant_id
    identity = _bearer(call, request.token, tenant)
    try:
        check_scope(Scope(tenant, DEFAULT_SCOPE.namespace))
        call.host.enter(tenant)
    except BrokerError as error:
        raise RequestRefused(f"auth failed: {error}", ends=True) from None
    call.identity, call.tenant, call.flags = identity, tenant, request.client_flags
    return Reply(call.dialect.authenticated(request.client_flags))


def _bearer(call: RequestContext, token: str, tenant: str) -> Identity:
    """Whose token, or API key, it is. With security off anybody is let in, and bound to the tenant that was named."""
    peer = call.channel.peer
    if not call.broker.access.enforced:
        return call.identity._replace(tenant=tenant, peer=peer)
    verdict = call.broker.keys.authenticate(token, peer, tenant=tenant)
    if verdict == "locked":
        raise RequestRefused("auth failed: too many wrong tokens came from here, try again later", ends=True)
    if not isinstance(verdict, Identity) or verdict.tenant != tenant:  # one that is of no tenant is not of this one
        raise RequestRefused("auth failed", ends=True)
    return verdict
