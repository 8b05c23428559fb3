"""Schemas: versions, compatibility, and validation of records."""
