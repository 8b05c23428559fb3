"""The broker process: assembles all parts, runs them, and shuts them down.

`process` (event loop, signals) runs `server` (start, stop), which opens the `broker`, the listeners of the `doors` and
the `workers`; `maintenance` runs periodic work, `exposure` prevents insecure listeners, `banner` is the operator's
summary. Imports everything but cli, clients and conformance. Start at `server.py`.
"""
