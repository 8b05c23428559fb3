"""The one error of starting a broker."""

from __future__ import annotations


class StartFailed(Exception):
    """The broker cannot start. The text says why and what to do, for somebody at a terminal."""


class StandbyStopped(StartFailed):
    """A broker that waited for the journal was told to stop."""
