"""Handlers of Kimberlite's requests: one module for each family, and `table.py`, which lists them all."""
