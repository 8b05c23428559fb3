"""Push delivery: cursors dealt out to groups, and fan-out of the same records to many subscribers."""
