"""Produce: validation, partitioning, delayed records. Start at `produce_service.py`, which is `broker.produce`."""
