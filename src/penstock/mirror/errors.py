"""Errors of mirroring."""

from __future__ import annotations


class MirrorError(Exception):
    """It cannot be done, and trying again would not help."""


class Unsupported(MirrorError):
    """A protocol has no way to do this."""
