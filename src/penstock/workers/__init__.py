"""Processes beside the broker, and their RPC with it: Flight, SQL, tables. Imports sql, flight, broker and log.

Start at `supervisor.py` and `rpc.py`; of each worker, `main.py` is its process and `rpc_handlers.py` the broker's side.
"""
