"""Topics: creation, settings, deletion, lookup. Start at `topics.py`, which is `broker.topics`."""
