"""Kimberlite: tenants, event streams, SQL and point-in-time queries, in every version and encoding of its protocol."""
