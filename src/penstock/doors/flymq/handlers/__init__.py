"""Handlers of requests: one module for each family, and `table.HANDLERS`, which lists them all."""
