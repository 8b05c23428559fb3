"""The client side of the five protocols, blocking and asyncio.

Imports wire, and of transport what both sides share; never the broker, and a client never another. Start at `_core`,
which they all are built on, then `<protocol>/client.py` and `<protocol>/requests.py`; `rustlog` is the smallest.

Every exception of every client is a `PenstockError`.
"""

from penstock.clients._core.errors import PenstockError

__all__ = ["PenstockError"]
