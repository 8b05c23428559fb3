"""The durable log: batches, commit groups, segments, recovery, retention, tables. Knows nothing of what a record means.

Imports nothing of ours. Start at `engine.py`, the interface; `file_engine.py` implements it, `committer.py` decides
when a group is written.
"""
