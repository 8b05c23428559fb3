"""Worker processes beside the broker: work that would hold up its event loop.

`supervisor` starts them again when they end; `rpc` carries their requests to the broker. Each worker is a package with
`main` (the process), `worker` (the broker's handle of it), `rpc_handlers` (the broker's side) and `rpc_messages` (both
sides). Imports sql, flight, broker and log. Start at `supervisor.py`.
"""
