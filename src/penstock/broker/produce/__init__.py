"""The way in for records: validation, partitioning, delayed records."""
