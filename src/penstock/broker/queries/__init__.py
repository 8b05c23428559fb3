"""SQL statements: admission, scheduling by tenant, and the requests that the SQL worker may make to the broker.

Start at `queries.py`, which is `broker.queries`, then `query_capability.py`.
"""
