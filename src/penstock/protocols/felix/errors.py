"""What went wrong, in the words that Felix clients know."""

from __future__ import annotations


class RequestRefused(Exception):
    """A request that is not carried out, for a reason that this protocol has."""
