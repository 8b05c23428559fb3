"""Handlers of BlipMQ's frames: one module for each family, and `table.HANDLERS`, which lists them all."""
