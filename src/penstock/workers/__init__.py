"""Processes beside the broker, and their RPC with it: Flight, SQL, tables."""
