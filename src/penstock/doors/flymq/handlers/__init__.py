"""Handlers of FlyMQ's requests: one module for each family, and `table.py`, which lists them all."""
