"""Permissions in the tables of handlers, and whether they are true.

A handler's entry names the permission that its request needs. Here somebody has all permissions but that one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from penstock.broker.names import Scope
from penstock.broker.security.access import Access, Grant, Identity, Permission


@contextmanager
def without(permission: Permission) -> Iterator[None]:
    """Nobody has this permission, whatever their grants say."""
    covering = Access._covering

    def others(access: Access, identity: Identity, needed: Permission, scope: Scope) -> list[Grant] | None:
        return [] if needed is permission else covering(access, identity, needed, scope)

    with patch.object(Access, "_covering", others):
        yield
