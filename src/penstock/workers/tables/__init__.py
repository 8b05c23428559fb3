"""The table worker: moves closed segments to tables, and maintains these. Start at `main.py`."""
