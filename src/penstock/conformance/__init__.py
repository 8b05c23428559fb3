"""The conformance suite: test vectors of the five protocols, checked against our codecs or played to any server.

The vectors were written from the protocols' specifications and are separate from the code, in `conformance/vectors`;
the README there describes their format. Nothing here depends on pytest. Imports clients and wire. Start at
`vectors.py`, then `player.py`.
"""
