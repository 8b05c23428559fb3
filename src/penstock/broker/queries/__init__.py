"""SQL statements: admission, scheduling by tenant, and what the SQL worker may ask of the broker.

Start at `queries.py`, which is `broker.queries`, then `query_capability.py`.
"""
