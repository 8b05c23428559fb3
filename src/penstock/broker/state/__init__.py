"""The broker's state besides records: events, `apply`, and the state log that keeps state and journal consistent.

Start at `state_log.py`.
"""
