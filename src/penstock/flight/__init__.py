"""The log for programs outside the broker: over Arrow Flight, or from a data directory that no broker uses.

Imports broker and log. Start at `log.py`, the interface; `client.py` and `directory.py` implement it.
"""
