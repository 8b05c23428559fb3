"""The server side of the five protocols. A door turns a connection's bytes into calls of the broker and its results
into replies.

Imports wire, broker and log; a door never imports another. Start at `session.py` and `pipeline.py`, then
`<door>/session.py` and `<door>/handlers/table.py`.
"""
