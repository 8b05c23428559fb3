"""Tenants: registration, quotas, rate limits."""
