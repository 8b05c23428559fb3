"""QUIC over UDP, for server and clients. Imports nothing of ours. Start at `connection.py`."""
