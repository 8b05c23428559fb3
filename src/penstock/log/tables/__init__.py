"""Tables: closed segments as Parquet, in one Delta table per topic. Most of it imports pyarrow: not for startup.

Start at `table.py`, then `build.py`.
"""
