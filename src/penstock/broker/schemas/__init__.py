"""Schemas: versions, compatibility, and validation of records. Start at `schemas.py`, which is `broker.schemas`; what
a definition means is in `formats/`.
"""
