"""The client side of the five protocols, blocking and asyncio.

Imports wire, and the parts of transport that both sides share; never the broker, and no client imports another. Start
at `_core`, on which all are built, then `<protocol>/client.py` and `<protocol>/requests.py`; `rustlog` is the smallest.

Every exception of every client is a `PenstockError`.
"""

from penstock.clients._core.errors import PenstockError

__all__ = ["PenstockError"]
