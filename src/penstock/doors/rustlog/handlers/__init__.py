"""Handlers of RustLog's requests: one module for each family, and `table.py`, which lists them all."""
