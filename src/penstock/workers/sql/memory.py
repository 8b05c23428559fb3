"""Memory of a SQL process: what one statement may take, and whether the next one finds as much.

DuckDB does not count everything, so the system does (RLIMIT_DATA). It counts what is mapped, used or not, and
allocators keep mapped what was freed. What one statement leaves behind like that, the next one, of whichever tenant,
would lack.
"""

from __future__ import annotations

import contextlib
import os
import resource

_ALLOCATORS = {
    "DUCKDB_JE_MALLOC_CONF": "retain:false",  # of the allocator that DuckDB brings along
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # instead of mimalloc, which takes 1 GiB at once and gives nothing back
}


def return_freed_memory() -> None:
    """Let the allocators of DuckDB and Arrow give address space back, instead of keeping it. Before either is
    imported."""
    for name, value in _ALLOCATORS.items():
        os.environ.setdefault(name, value)


def data_bytes() -> int:
    """The memory that the system counts against the limit; 0 if it does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    return 0


class MemoryLimit:
    """So many bytes of memory more than the process has, and not one beyond: who asks for it is told that there is
    none. Of what is mapped only that counts which can be written to, not files or libraries."""

    def __init__(self, statement_bytes: int, overhead_bytes: int) -> None:
        self._spared = overhead_bytes // 2  # what statements may leave behind: what one may take is still there
        self._held = data_bytes()
        if self._held:
            limit = self._held + statement_bytes + overhead_bytes
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))

    @property
    def used_up(self) -> bool:
        """So much is left behind that the next statement would not find what it may take."""
        return bool(self._held) and data_bytes() - self._held > self._spared
