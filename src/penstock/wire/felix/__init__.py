"""The Felix protocol: QUIC streams of frames, pub/sub with fan-out, and a cache.

Start at `frames.py` and `messages.py`; JSON and binary encodings are in `codec/`.
"""
