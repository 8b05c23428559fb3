"""Sockets: TCP, TLS, QUIC, sniffing, connection limits, back-pressure, busy polling. Knows bytes and sessions, not what
the bytes mean.

Imports doors (their interface), broker and log. Start at `tcp_connection.py`, and `quic_sessions.py` for QUIC.
"""
