"""SQL statements: outcome, scheduling by tenant, and what the SQL worker may ask of the broker."""
