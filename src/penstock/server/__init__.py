"""The broker process: start, banner, signals, supervision of workers, shutdown. Imports every part that it runs.

Start at `server.py`; `doors.py` is the table of doors.
"""
