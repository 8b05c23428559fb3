"""The server side of the five protocols. A door translates a connection's bytes into calls of the broker, and results
into replies. Imports wire, broker and log; a door never imports another.

Shared by all doors: `session` (the interface to the transport, and the states of a connection), `streams` (the same for
connections with many streams), `pipeline` (the dispatch loop and its error boundary), `handlers` (the entry type of the
tables), `reply` and `reply_queue` (replies, in order, each behind its commit), `fetch` (one fetch in progress).

In every `<door>/`: `session` (how frames become requests of the pipeline, and replies become frames), `states` (where
the protocol has a handshake), `request_context`, `errors` (broker error to wire error, one table), `handlers/` (one
module for each family of requests; `handlers/table` lists them all), `subscriptions` (where the protocol pushes).

Start reading at `pipeline`, then `<door>/handlers/table`.
"""
