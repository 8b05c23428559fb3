"""Bytes ⇄ messages of the five protocols, one package each. No sockets, no broker; imports nothing else of Penstock.

Start at `framing.py`, then `<protocol>/frames.py`, `messages.py` and `codec`.
"""
