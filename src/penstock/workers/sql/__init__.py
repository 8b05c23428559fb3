"""The SQL worker: carries out statements in a process of its own. Start at `main.py` and `streams.py`."""
