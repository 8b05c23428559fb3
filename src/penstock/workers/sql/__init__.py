"""The SQL worker: executes statements in its own process. Start at `executor.py`."""
