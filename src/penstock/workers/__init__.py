"""Worker processes next to the broker: work that would block its event loop.

`supervisor` restarts them when they exit; `rpc` carries their requests to the broker. Each worker is a package with
`main` (the process), `worker` (the broker's handle for it), `rpc_handlers` (the broker's side) and `rpc_messages` (both
sides). Imports sql, flight, broker and log. Start at `supervisor.py`.
"""
