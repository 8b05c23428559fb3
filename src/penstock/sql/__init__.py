"""SQL over the log, on DuckDB. Knows no socket and no protocol; runs in a process beside the broker."""
