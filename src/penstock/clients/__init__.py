"""The client side of the five protocols, blocking and asyncio, on one core. Imports wire, and of transport what both
sides share; never the broker.

Start with `_core/__init__.py`, which says what a door supplies and what it gets, then `rustlog/`, the smallest door:
`requests` (what can be sent, and what the replies mean), `client` (the public classes), `errors`.

Every exception of every client is a `PenstockError`.
"""

from penstock.clients._core.errors import PenstockError

__all__ = ["PenstockError"]
