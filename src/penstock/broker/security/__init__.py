"""Who may do what: identities, the one access check, users, keys, tokens, lock-out, and the audit log."""
