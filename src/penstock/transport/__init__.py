"""Sockets: TCP, TLS, QUIC, sniffing of protocols, connection limits, back-pressure, busy polling.

Moves bytes between sockets and sessions (`doors.session`) without interpreting them. Imports doors, broker and log;
`quic/` imports no other package of ours, because clients use it too. Start at `tcp_connection.py` or
`quic_sessions.py`.
"""
