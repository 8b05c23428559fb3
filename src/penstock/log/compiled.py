"""Whether this copy of Penstock was compiled (`make compiled`), for those who say so to people."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES

from penstock.log import batch


def compiled() -> bool:
    """Whether the modules that every record passes through are machine code. This one stands for all."""
    return (batch.__file__ or "").endswith(tuple(EXTENSION_SUFFIXES))
