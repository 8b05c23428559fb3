"""Errors of mirroring."""

from __future__ import annotations


class MirrorError(Exception):
    """The mirror cannot work, and a retry would not help."""


class Unsupported(MirrorError):
    """The protocol does not support this."""
