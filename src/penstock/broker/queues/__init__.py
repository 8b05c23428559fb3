"""Queues: at-least-once delivery with acknowledgements, redelivery, and dead letters.

Start at `queues.py`, which is `broker.queues`; `queue.py` has the rules.
"""
