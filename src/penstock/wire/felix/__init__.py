"""The Felix protocol: QUIC streams of frames, pub/sub with fan-out, and a cache."""
