"""The cache: values under keys, for a time, in memory or journalled. Start at `cache_service.py`, which doors call."""
