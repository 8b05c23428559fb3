"""Security: identities, the one access check, users, keys, tokens, lock-out, and the audit log.

Start at `access.py`, through which every operation of a client passes.
"""
