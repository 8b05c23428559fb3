"""Mirroring: copies topics from one broker to another; each is a URL of any door.

Imports clients and wire formats, never a broker. `url` parses the URLs, `copier` does the work, `ends` defines sources
and destinations; each protocol's are in the module of its name. Only the URL's protocol is used, so either end may be
an original server that supports no other.

Delivery guarantees depend on the destination:

    penstock    exactly once   batches are numbered, and a repeated one is stored once
    kafka       exactly once   a batch and the mirror's progress are in one transaction
    kimberlite  exactly once   appends have an expected offset
    rustlog     exactly once   if nobody else writes there: after a failure the end of the partition is compared with
    flymq       exactly once   the intended batch (`Copier._recovered`)
    felix       at least once  the last records written cannot be read back
    blipmq      at least once  the same

Before a batch is written, its `progress.Intent` is stored at the destination, in a topic next to the target. After a
crash, a mirror finds it there, and continues. If the destination cannot be read back, or the source has no offsets
(BlipMQ), progress is stored in a file, and the last batch may be written twice.
"""
