"""Our client for Felix brokers."""
