"""The SQL worker: executes statements in a process of its own. Start at `executor.py`."""
