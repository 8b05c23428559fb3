"""The BlipMQ door: sessions, request handlers and error mapping."""
