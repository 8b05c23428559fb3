"""What each opcode does: one module for each family, and `table.OPERATIONS`, which brings them together."""
