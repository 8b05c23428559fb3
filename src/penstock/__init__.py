"""Penstock: one durable log behind five broker wire protocols, and a table for Spark."""

__version__ = "0.1.0"
