"""Colours: on a terminal that supports them, unless NO_COLOR is set (no-color.org) or TERM is dumb."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def coloured(stream: TextIO | None = None) -> bool:
    """Whether to use colours and styles on standard output, or on another stream."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return (sys.stdout if stream is None else stream).isatty()
