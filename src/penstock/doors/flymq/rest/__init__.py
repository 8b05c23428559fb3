"""FlyMQ's administration over HTTP: the part of the original's `/api/v1` that applies to a single node, and the health
checks of its command line. It is a separate door (`flymq_admin`) with FlyMQ's paths and documents; users, permissions
and audit are shared with all doors. Imports `doors.http`, the FlyMQ door and the broker. Start at `door.py`."""
