"""Publications: records staged by many tasks that become part of the log together and exactly once.

Start at `publications.py`, which is `broker.publications`; `partition_split.py` and `staging.py` run in the Flight
worker.
"""
