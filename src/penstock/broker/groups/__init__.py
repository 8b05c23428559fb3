"""Consumer groups: committed offsets, members, lag. Start at `groups.py`, which is `broker.groups`."""
