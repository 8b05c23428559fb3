"""The broker process: puts all parts together, runs them and takes them apart again.

`process` (event loop, signals) runs `server` (start, stop), which opens the `broker`, the `doors`' listeners and the
`workers`; `maintenance` is what is due by the clock, `exposure` what may not be open, `banner` what the operator reads.
Imports everything but cli, clients and conformance. Start at `server.py`.
"""
