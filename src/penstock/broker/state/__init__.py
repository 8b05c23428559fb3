"""The broker's state besides records: events, `apply`, and the state log that keeps both in step."""
