"""Features: requests and replies that one side must announce, in `auth` and `auth_ok`, before the other may send them.
A flag describes the encoding of a frame; a feature, the existence of a message."""

from __future__ import annotations

from typing import Final

CACHE_DELETE: Final = 0x0000_0004  # `cache_delete` is answered with whether the key existed
STREAM_SHARDS: Final = 0x0000_0020  # `stream_shards` is answered, and a subscription reads one partition
COUNTERS: Final = 0x0000_0100  # `counter_add` and `counter_get` are answered
ERROR_CODES: Final = 0x0000_0800  # `error` and `publish_error` have a code and a retry class
UNSUPPORTED: Final = 0x0000_2000  # unknown requests are answered with `unsupported`
ACK_ON_COMMIT: Final = 0x0008_0000  # acknowledgements are sent after everything is stored, as always here
EXTENDED: Final = 0x8000_0000  # there is a second word of features

SERVED: Final = CACHE_DELETE | STREAM_SHARDS | COUNTERS | ERROR_CODES | UNSUPPORTED | ACK_ON_COMMIT

EXPLICIT_SHARD: Final = 0x0000_0008  # in the second word: `shard` in publications is honoured
SERVED_EXTENDED: Final = EXPLICIT_SHARD
