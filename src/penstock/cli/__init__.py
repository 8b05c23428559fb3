"""The `penstock` command: one module for each noun. Imports everything; nothing imports it. Start at `main.py`."""
