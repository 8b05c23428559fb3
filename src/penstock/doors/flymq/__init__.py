"""The FlyMQ door: sessions, request handlers and error mapping."""
