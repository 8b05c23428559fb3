"""The table worker: moves closed segments to tables and maintains them, in its own process. See `main.py`."""
