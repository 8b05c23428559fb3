"""Kimberlite: tenants, event streams, SQL and point-in-time queries, in every version and encoding of its protocol.

Start at `frames.py` and `messages.py`, then `codec/connection.py`: a codec remembers the version of its connection.
"""
