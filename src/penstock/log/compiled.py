"""Whether this installation of Penstock is compiled (`make compiled`), to report it to users."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES

from penstock.log import batch


def compiled() -> bool:
    """Whether the modules of the hot path are machine code; this one is representative."""
    return (batch.__file__ or "").endswith(tuple(EXTENSION_SUFFIXES))
