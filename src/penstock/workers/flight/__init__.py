"""The Flight worker: the Arrow Flight endpoint in its own process. Imports flight, broker and log. Start at
`server.py`."""
