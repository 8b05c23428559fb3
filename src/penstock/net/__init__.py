"""Listeners: the only place with sockets."""
