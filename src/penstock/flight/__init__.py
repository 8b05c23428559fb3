"""The log for programs beside the broker: over Arrow Flight, or from a data directory that no broker uses.

Imports broker and log. Start at `log.py`, the interface of both; `client.py` and `directory.py` implement it.
"""
