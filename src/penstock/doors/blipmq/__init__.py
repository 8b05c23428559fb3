"""The BlipMQ door: the server side of the protocol. Imports wire/blipmq, and never another door.

Start at `session.py` (a connection) and `handlers/table.py` (what each request does).
"""
