"""Registered tenants: the stored fields, and the rules for registering one. Pure; `Tenants` commits the events.

A tenant need not be registered to have topics. A registered one has a label and exists before its first topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.broker.errors import InvalidArgument, LimitReached, TenantExists
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope, check_scope
from penstock.broker.state.events import TenantSet
from penstock.broker.tenancy.fair_share import allowance

MAX_LABEL: Final = 255  # characters


class RegisteredTenant(msgspec.Struct, frozen=True):
    name: str
    label: str  # display name; empty if none was given
    created: int  # µs since 1970


def check_name(tenant: str) -> None:
    """Raises InvalidName unless this can be the name of a tenant."""
    check_scope(Scope(tenant, DEFAULT_SCOPE.namespace))


def register(
    known: Mapping[str, RegisteredTenant],
    limits: Limits,
    tenant: str,
    label: str | None,
    now: int,
    *,
    on_first_use: bool = False,
) -> TenantSet | None:
    """The event that registers the tenant; None if it is already registered with this label. A tenant without a label
    gets the first one given. A different label raises TenantExists, because most likely a different tenant was meant.

    Tenants registered on first use leave room for those that an administrator registers.
    """
    check_name(tenant)
    label = label or ""
    if len(label) > MAX_LABEL or not label.isprintable():
        raise InvalidArgument(f"A tenant's label has up to {MAX_LABEL} printable characters")
    found = known.get(tenant)
    if found is None:
        room = allowance(limits.tenants, 0, limits.tenant_share) if on_first_use else limits.tenants
        if len(known) >= room:
            why = ", which is its limit" if room == limits.tenants else "; others are for administrators to register"
            raise LimitReached(f"The broker holds {len(known)} tenants{why}")
        return TenantSet(tenant, label, now)
    if not label or label == found.label:
        return None
    if found.label:
        raise TenantExists(tenant)
    return TenantSet(tenant, label, found.created)
