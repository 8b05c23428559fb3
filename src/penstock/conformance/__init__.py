"""Test vectors for the five protocols, and playing them to a codec or to a server."""
