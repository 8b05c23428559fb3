"""Fair shares: how much of what there is for all tenants together one of them may take.

One rule for everything that is counted: a tenant may have its share of what the others leave. With a share of a half,
the first may take half of the limit, a second one half of the rest, and so on: however greedy they are, there is
something left for the next one. What a tenant has, it keeps; it only gets no more. Pure.
"""

from __future__ import annotations

import math

from penstock.broker.errors import LimitReached, QuotaReached


def allowance(limit: int, others: int, share: float) -> int:
    """The part of `limit` that one may have, of which others have `others`; something as long as anything is left."""
    return math.ceil(share * max(0, limit - others))


def check_room(
    what: str, limit: int, total: int, tenant: str, mine: int, share: float, more: int = 1, remedy: str = ""
) -> None:
    """Raise unless the tenant may have `more` of `what` besides `mine`: LimitReached if there are as many as there may
    be, `total` of all tenants, QuotaReached if the tenant has its share of them."""
    if total + more > limit:
        raise LimitReached(f"The broker holds {limit} {what}, which is its limit{remedy}")
    if mine + more > allowance(limit, total - mine, share):
        raise QuotaReached(
            f"Tenant '{tenant}' has {mine} {what}, which is its share: the rest is for other tenants "
            f"(limits.tenant_share){remedy}"
        )
