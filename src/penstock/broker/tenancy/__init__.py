"""Tenants: registration, quotas, rate limits. Start at `tenants.py`, which is `broker.tenants`."""
