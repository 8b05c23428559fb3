"""Memory of a SQL process: the limit for one statement, and whether as much is left for the next one.

DuckDB does not count everything, so the system does (RLIMIT_DATA). It counts mapped memory, used or not, and allocators
keep freed memory mapped. Memory that one statement leaves behind in this way would be missing for the next one, of
whichever tenant.
"""

from __future__ import annotations

import contextlib
import os
import resource

_ALLOCATORS = {
    "DUCKDB_JE_MALLOC_CONF": "retain:false",  # of DuckDB's bundled allocator
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # instead of mimalloc, which maps 1 GiB at once and returns nothing
}


def return_freed_memory() -> None:
    """Make the allocators of DuckDB and Arrow return address space instead of keeping it. Call before either is
    imported."""
    for name, value in _ALLOCATORS.items():
        os.environ.setdefault(name, value)


def data_bytes() -> int:
    """The memory that the system counts against the limit; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    return 0


class MemoryLimit:
    """Limits the process to this many bytes more than it has now; further allocations fail. Only writable mappings
    count, not files or libraries."""

    def __init__(self, statement_bytes: int, overhead_bytes: int) -> None:
        self._spared = overhead_bytes // 2  # that statements may leave behind without reducing the next one's share
        self._held = data_bytes()
        if self._held:
            limit = self._held + statement_bytes + overhead_bytes
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))

    @property
    def used_up(self) -> bool:
        """Whether so much was left behind that the next statement would not get its full share."""
        return bool(self._held) and data_bytes() - self._held > self._spared
