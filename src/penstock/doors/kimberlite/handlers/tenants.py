"""Tenants: the broker's own, under the numbers that they have here."""

from __future__ import annotations

from penstock.broker.security.access import EVERYWHERE, Permission
from penstock.broker.tenancy.tenants import Tenant
from penstock.doors.kimberlite.request_context import RequestContext
from penstock.doors.reply import Reply
from penstock.wire.kimberlite import messages as m


def create(call: RequestContext, request: m.TenantCreate) -> Reply:
    tenants, name = call.broker.tenants, call.settings.name(request.tenant_id)
    call.broker.access.require(call.identity, Permission.ADMIN, EVERYWHERE, "")  # before anything is looked up
    existed = tenants.exists(name)
    tenant, group = tenants.create(call.identity, name, request.name)
    return Reply(m.TenantCreateResponse(_info(request.tenant_id, tenant), not existed), group)


def list_tenants(call: RequestContext, _request: m.TenantList) -> Reply:
    """Those that have a number here."""
    numbered = [(call.settings.number(tenant.name), tenant) for tenant in call.broker.tenants.list(call.identity)]
    return Reply(m.TenantListResponse([_info(number, tenant) for number, tenant in numbered if number is not None]))


def get(call: RequestContext, request: m.TenantGet) -> Reply:
    tenant = call.broker.tenants.get(call.identity, call.settings.name(request.tenant_id))
    return Reply(m.TenantGetResponse(_info(request.tenant_id, tenant)))


def delete(call: RequestContext, request: m.TenantDelete) -> Reply:
    """With all its streams, its keys and its users."""
    tenant, group = call.broker.tenants.delete(call.identity, call.settings.name(request.tenant_id))
    return Reply(m.TenantDeleteResponse(True, tenant.topics), group)


def _info(number: int, tenant: Tenant) -> m.TenantInfo:
    return m.TenantInfo(number, tenant.label or None, tenant.topics, tenant.created * 1000)
