"""FlyMQ: a partitioned log with groups, schemas, delays, transactions and users, in binary frames with an opcode.

Start at `opcodes.py` and `messages/`; the layouts are tables in `codec/`.
"""
