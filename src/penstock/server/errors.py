"""Errors of starting a broker."""

from __future__ import annotations


class StartFailed(Exception):
    """The broker cannot start. The text has the reason and the remedy, for an operator at a terminal."""


class StandbyStopped(StartFailed):
    """A broker was stopped while it waited for the journal."""
