"""Push delivery: cursors shared by groups of subscribers (`subscriptions.py`), and fan-out of the same records to many
subscribers (`fanout.py`). Start there.
"""
