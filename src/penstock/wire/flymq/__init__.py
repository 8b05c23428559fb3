"""FlyMQ: a partitioned log with groups, schemas, delays, transactions and users, in binary frames with an opcode."""
