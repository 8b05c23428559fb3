"""The conformance vectors by name, for tests that compare their bytes with messages."""

from __future__ import annotations

from functools import cache

from penstock.conformance.vectors import Vector, vectors


@cache
def by_name(protocol: str) -> dict[str, Vector]:
    """Every vector, by `FILE/NAME`. Those of Felix's original are frames here, and not the messages in them."""
    found: dict[str, Vector] = {}
    for vector in vectors(protocol):
        found.setdefault(vector.name, vector)
    return found


@cache
def vector_bytes(protocol: str) -> dict[str, bytes]:
    return {name: vector.data for name, vector in by_name(protocol).items()}
