"""Tables: closed segments as Parquet, in one Delta table per topic. Most of it loads pyarrow: not for a start.

Start at `table.py`, then `build.py`.
"""
