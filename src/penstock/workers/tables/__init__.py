"""The table worker: moves closed segments to tables and maintains them, in a process of its own. See `main.py`."""
