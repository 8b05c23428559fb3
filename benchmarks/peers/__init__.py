"""Penstock beside other servers that keep records: `make bench-peers`.

One load generator serves all of them (`generator`), with requests that were made before (`conversations`); servers run
with equal durability (`servers`); rounds of all servers are interleaved (`parts`). Start reading in `__main__`.
"""
