"""The Felix door: the server side of the protocol. Imports wire/felix, and never another door.

Start at `session.py` (a connection) and `handlers/table.py` (what each request does).
"""
