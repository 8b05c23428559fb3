"""The table worker: moves closed segments to tables and maintains them, in its own process. Imports broker and log.
Start at `main.py`.
"""
