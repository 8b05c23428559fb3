"""Schemas: versions, compatibility, and validation of records. Start at `schemas.py`, which is `broker.schemas`; the
schema languages are in `formats/`.
"""
