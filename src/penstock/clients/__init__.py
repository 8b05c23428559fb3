"""The client side of the five protocols, blocking and asyncio.

Imports wire, and of transport what both sides share; never the broker, and a client never another. Start at `_core`,
which they all are built on, then `<protocol>/client.py` and `<protocol>/requests.py`.
"""
