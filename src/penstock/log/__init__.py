"""The durable log: batches, the journal, recovery, retention, and the engine interface over them."""
