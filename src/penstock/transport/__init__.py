"""Sockets: TCP, TLS, QUIC, sniffing, connection limits, back-pressure, busy polling. Knows bytes and sessions, not
what they mean.
"""
