"""RustLog: a partitioned log in length-prefixed JSON frames, and the binary dialect of the original's clients."""
