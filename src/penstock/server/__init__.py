"""The broker process: start, banner, signals, supervision of workers, shutdown. Start at `server.py`."""
