"""Transactions: records of several topics that appear together or not at all. Start at `transactions.py`."""
