"""Typed reading: what columns a schema has (one module for each language), how they are filled, and `decode`."""
