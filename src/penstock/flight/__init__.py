"""The log for programs beside the broker: over Arrow Flight, or from a data directory that no broker uses."""
