"""BlipMQ: queues with QoS 0 and 1 in small binary frames; clients of version 1 poll for messages, version 2 has
pushes.

Start at `frames.py` and `codec.py`.
"""
