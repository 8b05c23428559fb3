"""The Felix door: sessions, request handlers and error mapping."""
