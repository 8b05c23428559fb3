"""The messages of FlyMQ as values, without a word about bytes: requests in `requests.py`, replies in `replies.py`.

`codec` says which message belongs to which opcode and how it is laid out. A request has a class of its own for each
opcode. Replies that look alike share one, and are sent under the opcode of their request: `replies.encode(op, reply)`.

A key is None if there is none; on the wire it is then empty, and an empty key is none. A partition of -1 leaves the
choice to the broker. Times end in their unit: `_ms` and `_s` since 1970, except delays and lives.
"""

from penstock.wire.flymq.messages.message import ANY_PARTITION as ANY_PARTITION
from penstock.wire.flymq.messages.message import NO_KEY as NO_KEY
from penstock.wire.flymq.messages.message import Message as Message
from penstock.wire.flymq.messages.replies import *  # noqa: F403 - all of them are messages
from penstock.wire.flymq.messages.requests import *  # noqa: F403
