"""The durable log: batches, commit groups, segments, recovery, retention, tables. It does not interpret records.

Imports nothing else of Penstock. Start at `engine.py`, the interface; `file_engine.py` implements it, `committer.py`
decides when a group is written.
"""
