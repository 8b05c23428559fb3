"""API keys of a tenant."""

from __future__ import annotations

from penstock.broker.security.key import Key, KeyTerms, expiry
from penstock.doors.kimberlite.request_context import RequestContext
from penstock.doors.reply import Reply
from penstock.wire.kimberlite import messages as m


def register(call: RequestContext, request: m.ApiKeyRegister) -> Reply:
    tenant = call.settings.name(request.tenant_id)
    terms = KeyTerms(request.subject, tenant, (), expires=expiry(request.expires_at_nanos), roles=request.roles)
    new, group = call.broker.keys.add(call.identity, terms)
    return Reply(m.ApiKeyRegisterResponse(new.secret, _info(call, new.key)), group)


def revoke(call: RequestContext, request: m.ApiKeyRevoke) -> Reply:
    """Named by the key itself, or by its id."""
    keys, now = call.broker.keys, call.broker.now()
    key = keys.find(call.identity, request.key)
    return Reply(m.ApiKeyRevokeResponse(key.state(now) != "revoked"), keys.revoke(call.identity, key.id))


def list_keys(call: RequestContext, request: m.ApiKeyList) -> Reply:
    """Those that count, of this tenant or of the one that was asked for."""
    tenant = call.scope.tenant if request.tenant_id is None else call.settings.name(request.tenant_id)
    now = call.broker.now()
    keys = [key for key in call.broker.keys.list(call.identity, tenant) if key.state(now) == "active"]
    return Reply(m.ApiKeyListResponse([_info(call, key) for key in keys]))


def rotate(call: RequestContext, request: m.ApiKeyRotate) -> Reply:
    new, group = call.broker.keys.rotate(call.identity, request.old_key)
    return Reply(m.ApiKeyRotateResponse(new.secret, _info(call, new.key)), group)


def _info(call: RequestContext, key: Key) -> m.ApiKeyInfo:
    """A key that was not made here may have permissions instead of roles: they are shown in their place."""
    expires = None if key.expires is None else key.expires * 1000
    tenant = call.settings.number(key.tenant)
    roles = [*key.roles, *key.permissions]
    return m.ApiKeyInfo(str(key.id), key.name, call.tenant if tenant is None else tenant, roles, expires)
