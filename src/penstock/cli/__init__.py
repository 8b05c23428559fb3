"""The `penstock` command: one module for each noun. It may import everything; nothing imports it. Start at
`main.py`."""
