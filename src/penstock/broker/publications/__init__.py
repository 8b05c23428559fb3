"""Publications: records staged by many tasks and added to the log together, exactly once.

Start at `publications.py`, which is `broker.publications`; `partition_split.py` and `staging.py` run in the Flight
worker.
"""
