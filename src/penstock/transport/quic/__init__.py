"""QUIC over UDP, for the server and clients. Imports no other package of ours. Start at `connection.py`."""
