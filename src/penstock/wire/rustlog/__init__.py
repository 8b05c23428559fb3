"""RustLog: a partitioned log in length-prefixed JSON frames, and the binary dialect of the original's clients.

Start at `frames.py` and `messages.py`; the dialects are in `codec/`.
"""
