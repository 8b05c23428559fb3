"""HTTP for operators: health, metrics, the console's SQL, and the administration socket of the command line.

Imports doors, broker and log. Start at `http.py` (what a browser or a monitor asks), then `socket.py` (what `penstock
users`, `keys`, `topic` and the others ask).
"""
