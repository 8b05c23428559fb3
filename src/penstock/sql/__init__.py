"""SQL over the log, using DuckDB: a library that works with and without a broker. Independent of sockets and protocols.

Imports broker (names, values, errors) and log. Start at `run.py`; it runs in the SQL worker (`workers/sql`).
"""
