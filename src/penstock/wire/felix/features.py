"""Features: requests and replies that one side has to announce before the other may send them, in `auth` and `auth_ok`.
A flag tells how a frame is written; a feature, that a message exists."""

from __future__ import annotations

from typing import Final

CACHE_DELETE: Final = 0x0000_0004  # `cache_delete` is answered with what was there
STREAM_SHARDS: Final = 0x0000_0020  # `stream_shards` is answered, and a subscription is to one partition
COUNTERS: Final = 0x0000_0100  # `counter_add` and `counter_get` are answered
ERROR_CODES: Final = 0x0000_0800  # `error` and `publish_error` have a code and a retry class
UNSUPPORTED: Final = 0x0000_2000  # requests that are not known are answered by `unsupported`
ACK_ON_COMMIT: Final = 0x0008_0000  # acknowledgements are sent when all is stored, as they always are here
EXTENDED: Final = 0x8000_0000  # there is a second word

SERVED: Final = CACHE_DELETE | STREAM_SHARDS | COUNTERS | ERROR_CODES | UNSUPPORTED | ACK_ON_COMMIT

EXPLICIT_SHARD: Final = 0x0000_0008  # of the second word: `shard` in publications counts
SERVED_EXTENDED: Final = EXPLICIT_SHARD
