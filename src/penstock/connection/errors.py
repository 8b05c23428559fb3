"""Errors of the connection itself. All others are those of the doors' clients; all are `PenstockError`."""

from __future__ import annotations

from penstock.clients._core.errors import PenstockError


class DoorClosed(PenstockError):
    """The broker does not serve this: the door that carries it is closed, or takes no such credentials."""


class TableUnreadable(PenstockError):
    """The records of a topic could not be read by Flight."""
