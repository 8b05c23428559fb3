"""QUIC over UDP, for server and clients. Knows nothing of the broker or of a protocol."""
