"""The Flight worker: the Arrow Flight endpoint in a process of its own. Start at `server.py`."""
