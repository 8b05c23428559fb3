"""Typed reading in Spark: `decode`. `broker.schemas.arrow` computes the columns. Start at `frames.py`."""
