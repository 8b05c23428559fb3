"""Fair shares: how much of a resource shared by all tenants one of them may use.

One rule for all of them: a tenant may have its share of what the others leave. With a share of one half, the first
tenant may use half of the limit, the second half of the rest, and so on: however greedy they are, something is left for
the next one. A tenant keeps what it has; it just gets no more. Pure.
"""

from __future__ import annotations

import math

from penstock.broker.errors import LimitReached, QuotaReached


def allowance(limit: int, others: int, share: float) -> int:
    """The part of `limit` that a tenant may use while others use `others`; at least 1 as long as anything is left."""
    return math.ceil(share * max(0, limit - others))


def check_room(
    what: str, limit: int, total: int, tenant: str, mine: int, share: float, more: int = 1, remedy: str = ""
) -> None:
    """Raise unless the tenant may have `more` of `what` in addition to `mine`: LimitReached if the `total` of all
    tenants would exceed the limit, QuotaReached if the tenant would exceed its share.
    """
    if total + more > limit:
        raise LimitReached(f"The broker holds {limit} {what}, which is its limit{remedy}")
    if mine + more > allowance(limit, total - mine, share):
        raise QuotaReached(
            f"Tenant '{tenant}' has {mine} {what}, which is its share: the rest is for other tenants "
            f"(limits.tenant_share){remedy}"
        )
