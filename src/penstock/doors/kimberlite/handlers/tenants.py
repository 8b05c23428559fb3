"""Tenants: the broker's, by their numbers at this door."""

from __future__ import annotations

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import EVERYWHERE, Permission
from penstock.broker.tenancy.tenants import Tenant
from penstock.doors.kimberlite.request_context import KimberliteContext
from penstock.doors.reply import Reply
from penstock.wire.kimberlite import messages as m


def create(context: KimberliteContext, request: m.TenantCreate) -> Reply:
    tenants, name = context.broker.tenants, context.settings.name(request.tenant_id)
    with context.broker.audit.attempt(context.identity, "tenant.create", scope=DEFAULT_SCOPE, resource=name):
        context.broker.access.require(context.identity, Permission.ADMIN, EVERYWHERE, "")  # before any lookup
        existed = tenants.exists(name)
        tenant, group = tenants.create(context.identity, name, request.name)
    return Reply(m.TenantCreateResponse(_info(request.tenant_id, tenant), not existed), group)


def list_tenants(context: KimberliteContext, _request: m.TenantList) -> Reply:
    """The tenants that have a number at this door."""
    tenants = context.broker.tenants.list(context.identity)
    numbered = [(context.settings.number(tenant.name), tenant) for tenant in tenants]
    return Reply(m.TenantListResponse([_info(number, tenant) for number, tenant in numbered if number is not None]))


def get(context: KimberliteContext, request: m.TenantGet) -> Reply:
    tenant = context.broker.tenants.get(context.identity, context.settings.name(request.tenant_id))
    return Reply(m.TenantGetResponse(_info(request.tenant_id, tenant)))


def delete(context: KimberliteContext, request: m.TenantDelete) -> Reply:
    """Delete a tenant with all its streams, keys and users."""
    tenant, group = context.broker.tenants.delete(context.identity, context.settings.name(request.tenant_id))
    return Reply(m.TenantDeleteResponse(True, tenant.topics), group)


def _info(number: int, tenant: Tenant) -> m.TenantInfo:
    return m.TenantInfo(number, tenant.label or None, tenant.topics, tenant.created * 1000)
