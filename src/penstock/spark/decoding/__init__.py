"""Typed reading in Spark: `decode`. The columns themselves are `broker.schemas.arrow`'s."""
