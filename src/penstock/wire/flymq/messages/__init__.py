"""The messages of FlyMQ as values, independent of their encoding: requests in `requests.py`, replies in `replies.py`.

`codec` maps opcodes to messages and their layouts. There is a request class for each opcode. Replies of the same shape
share a class, and are sent with the opcode of their request: `replies.encode(op, reply)`.

A key is None if there is none; on the wire it is then empty, and an empty key counts as none. With a partition of -1
the broker chooses. Times end in their unit: `_ms` and `_s` since 1970, except for delays and TTLs.
"""

from penstock.wire.flymq.messages.message import ANY_PARTITION as ANY_PARTITION
from penstock.wire.flymq.messages.message import NO_KEY as NO_KEY
from penstock.wire.flymq.messages.message import Message as Message
from penstock.wire.flymq.messages.replies import *  # noqa: F403 - all of them are messages
from penstock.wire.flymq.messages.requests import *  # noqa: F403
