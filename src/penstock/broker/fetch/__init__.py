"""Fetch: which records are visible, waiting for more, filters, and views for readers in other processes.

Start at `fetch_service.py`, which is `broker.fetch`, then `visible_read.py`.
"""
