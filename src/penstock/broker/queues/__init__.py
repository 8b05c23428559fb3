"""Queues: at-least-once delivery with acknowledgements, redelivery, and dead letters."""
