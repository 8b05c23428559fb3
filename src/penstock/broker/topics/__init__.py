"""Topics: creation, settings, deletion, lookup."""
