"""Push delivery: cursors dealt out to groups (`subscriptions.py`), and fan-out of the same records to many
subscribers (`fanout.py`). Start there.
"""
