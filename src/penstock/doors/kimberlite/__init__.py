"""The Kimberlite door: sessions, request handlers and error mapping."""
