"""Errors of the connection itself. All others come from the doors' clients; all are `PenstockError`."""

from __future__ import annotations

from penstock.clients._core.errors import PenstockError


class DoorClosed(PenstockError):
    """The broker does not offer this: the required door is closed, or does not accept such credentials."""


class TableUnreadable(PenstockError):
    """The records of a topic could not be read over Flight."""
