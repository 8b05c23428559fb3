"""The Flight worker: the Arrow Flight endpoint in its own process. Start at `server.py`."""
