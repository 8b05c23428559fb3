"""The RustLog door: sessions, request handlers and error mapping."""
