"""FlyMQ's administration over HTTP: the part of the original's `/api/v1` that means something on one node, and the
health checks of its command line. A door of its own (`flymq_admin`), with FlyMQ's paths and documents; users,
permissions and audit are those of every door. Imports `doors.http`, the FlyMQ door and the broker. Start at `door.py`.
"""
