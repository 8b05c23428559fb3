"""Mirroring: copies topics from one broker to another, each by a URL of any door.

Imports clients and wire formats; never a broker. `url` has the addresses, `copier` the work, `ends` what a source and a
destination are; each protocol's are in the module of its name. A broker is spoken to in its URL's protocol alone, so
that it may be an original server that knows no other.

How often a record arrives depends on the destination:

    penstock    exactly once   batches are numbered, and one that is sent again counts once
    kafka       exactly once   a batch and the progress of the mirror are one transaction
    kimberlite  exactly once   an append says where it expects the stream to end
    rustlog     exactly once   while nobody else writes there: after a failure the end of the partition is compared with
    flymq       exactly once   what was to be written (`copier.recovered`)
    felix       at least once  what was written last cannot be found again
    blipmq      at least once  the same

Before a batch is written, what it is to be is stored with the destination (`progress.Intent`), in a topic beside the
one that is written. A mirror that was killed finds it there, and goes on. Where that cannot be read back, and where a
source has no offsets (BlipMQ), progress is in a file, and the last batch may come twice.
"""
