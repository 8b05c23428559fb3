"""The number of examples that a property test tries: all in `make test`, a fifth in `make check`, by the profile of
Hypothesis."""

from __future__ import annotations

from hypothesis import settings

FULL = 100  # examples of a test that says nothing, unless the profile is a quick one


def scaled(count: int) -> int:
    """So many examples or inputs, or the share of them that the profile leaves; a few in any case."""
    assert settings.default is not None
    return max(min(count, 10), count * settings.default.max_examples // FULL)
