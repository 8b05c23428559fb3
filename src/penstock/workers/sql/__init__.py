"""The SQL worker: carries out statements in a process of its own."""
