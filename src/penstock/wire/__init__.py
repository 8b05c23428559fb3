"""Bytes ⇄ messages of the five protocols, one package each. No sockets, no broker; imports nothing else of Penstock."""
