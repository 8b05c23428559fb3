"""API keys of a tenant."""

from __future__ import annotations

from penstock.broker.security.key import Key, KeyTerms, expiry
from penstock.doors.kimberlite.request_context import KimberliteContext
from penstock.doors.reply import Reply
from penstock.wire.kimberlite import messages as m


def register(context: KimberliteContext, request: m.ApiKeyRegister) -> Reply:
    tenant = context.settings.name(request.tenant_id)
    terms = KeyTerms(request.subject, tenant, (), expires=expiry(request.expires_at_nanos), roles=request.roles)
    new, group = context.broker.keys.add(context.identity, terms)
    return Reply(m.ApiKeyRegisterResponse(new.secret, _info(context, new.key)), group)


def revoke(context: KimberliteContext, request: m.ApiKeyRevoke) -> Reply:
    """The request contains the key itself, or its id."""
    broker, now = context.broker, context.broker.now()
    with broker.audit.attempt(context.identity, "key.revoke"):
        key = broker.keys.find(context.identity, request.key)
        group = broker.keys.revoke(context.identity, key.id)
    return Reply(m.ApiKeyRevokeResponse(key.state(now) != "revoked"), group)


def list_keys(context: KimberliteContext, request: m.ApiKeyList) -> Reply:
    """Active keys of this tenant, or of the tenant in the request."""
    tenant = context.scope.tenant if request.tenant_id is None else context.settings.name(request.tenant_id)
    now = context.broker.now()
    keys = [key for key in context.broker.keys.list(context.identity, tenant) if key.state(now) == "active"]
    return Reply(m.ApiKeyListResponse([_info(context, key) for key in keys]))


def rotate(context: KimberliteContext, request: m.ApiKeyRotate) -> Reply:
    new, group = context.broker.keys.rotate(context.identity, request.old_key)
    return Reply(m.ApiKeyRotateResponse(new.secret, _info(context, new.key)), group)


def _info(context: KimberliteContext, key: Key) -> m.ApiKeyInfo:
    """A key in a reply. A key created elsewhere may have permissions instead of roles: they are shown as roles."""
    expires = None if key.expires is None else key.expires * 1000
    tenant = context.settings.number(key.tenant)
    roles = [*key.roles, *key.permissions]
    return m.ApiKeyInfo(str(key.id), key.name, context.tenant if tenant is None else tenant, roles, expires)
