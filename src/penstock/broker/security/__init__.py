"""Security: identities, the access check, users, keys, tokens, lock-out, and the audit log.

Start at `access.py`: every operation of a client passes its check.
"""
