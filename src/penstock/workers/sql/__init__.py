"""The SQL worker: executes statements in its own process. Imports sql, flight, broker and log. Start at
`executor.py`."""
