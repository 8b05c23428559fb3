"""Consumer groups: committed offsets, members, lag."""
