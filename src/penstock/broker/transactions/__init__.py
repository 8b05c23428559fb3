"""Transactions: records of several topics, appended all together or not at all. Start at `transactions.py`."""
