"""SQL over the log, on DuckDB: a library, with and without a broker. Knows no socket and no protocol.

Imports broker (names, values, errors) and log. Start at `run.py`; it runs in the SQL worker (`workers/sql`).
"""
