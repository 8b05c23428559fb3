"""The cache: values under keys, for a time. `cache_service.py` is what doors call."""
