"""The cache: key-value pairs with a TTL, in memory or journalled. Start at `cache_service.py`, which the doors call."""
