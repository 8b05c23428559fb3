"""A disk in memory that keeps what is durable apart from what is not, and stops or fails on demand.

`SimDisk` stands behind the log's `Files` interface. It holds, per file, the durable bytes and every unsynced version
of every sector, and per directory the durable names and the changes not yet synced; a crash picks from these what
is left. It knows nothing of what the log writes.

The rules of a loss of power, each at least as harsh as a journalling file system on a disk with a write cache:

    unsynced sectors       each comes out as it was at the last sync, or as any later write left it, independently
    unsynced sizes         the file has any of the sizes it had since its last sync; sectors beyond it are lost
    reserved areas         read as zeros where nothing was written
    a failed sync          its sectors stay in doubt for ever: a later sync does not make them durable
    unsynced names         of each directory any prefix of its pending changes holds; a rename may be lost alone
    a new name             is not durable by a sync of its file, only by a sync of its directory
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

SECTOR = 512


class Crash(BaseException):
    """The machine stopped here. Not an Exception, so that nothing in the log takes it for an error to handle."""


@dataclass(slots=True)
class _Past:
    """A file as it was before it was emptied, while the emptying itself is not durable yet."""

    durable: bytes
    unsynced: dict[int, list[bytes]]
    sizes: list[int]


@dataclass(slots=True)
class _Inode:
    durable: bytearray = field(default_factory=bytearray)
    content: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)  # writes since the last sync: position, sectors
    doubtful: dict[int, list[bytes]] = field(default_factory=dict)  # sectors of failed syncs
    sizes: list[int] = field(default_factory=list)  # since the last sync
    past: list[_Past] = field(default_factory=list)

    def resize(self, size: int) -> None:
        if size > len(self.content):
            self.content.extend(bytes(size - len(self.content)))
            self.sizes.append(size)

    def empty(self, sector: int) -> None:
        self.past.append(self._now(sector))
        self.durable, self.content = bytearray(), bytearray()
        self.unsynced, self.doubtful, self.sizes = [], {}, []

    def write(self, position: int, data: bytes, sector: int) -> None:
        if not data:
            return
        end = position + len(data)
        self.resize(end)
        self.content[position:end] = data
        first, last = position // sector, (end - 1) // sector
        self.unsynced.append((first * sector, bytes(self.content[first * sector : (last + 1) * sector])))

    def sync(self, sector: int) -> None:
        if len(self.content) > len(self.durable):
            self.durable.extend(bytes(len(self.content) - len(self.durable)))
        for start, sectors in self.unsynced:
            span = slice(start, start + len(sectors))
            self.durable[span] = self.content[span]
        if self.doubtful:
            for number in self._versions(sector):
                self.doubtful.pop(number, None)
        self.unsynced, self.sizes, self.past = [], [], []

    def sync_failed(self, sector: int) -> None:
        self.doubtful = _merged(self.doubtful, self._versions(sector))
        self.unsynced = []

    def _versions(self, sector: int) -> dict[int, list[bytes]]:
        """Sector → its versions since the last sync. Only what a crash leaves depends on them, so they are not kept."""
        versions: dict[int, list[bytes]] = {}
        for start, sectors in self.unsynced:
            for at in range(0, len(sectors), sector):
                versions.setdefault((start + at) // sector, []).append(sectors[at : at + sector])
        return versions

    def _now(self, sector: int) -> _Past:
        return _Past(bytes(self.durable), _merged(self.doubtful, self._versions(sector)), self.sizes)

    def after_power_loss(self, rng: Random, sector: int) -> _Inode:
        moment = rng.choice([*self.past, self._now(sector)])
        size = rng.choice([len(moment.durable), *moment.sizes])
        left = bytearray(moment.durable)
        left.extend(bytes(max(0, size - len(left))))
        keep = rng.choice((0.1, 0.5, 0.9, 1.0, 0.0))  # mostly lost, mostly kept, and everything between
        for number, versions in moment.unsynced.items():
            if rng.random() < keep:
                version = rng.choice(versions)
                start = number * sector
                stop = min(start + len(version), len(left))
                if stop > start:
                    left[start:stop] = version[: stop - start]
        return _Inode(durable=left, content=bytearray(left))


def _merged(first: dict[int, list[bytes]], second: dict[int, list[bytes]]) -> dict[int, list[bytes]]:
    merged = {number: list(versions) for number, versions in first.items()}
    for number, versions in second.items():
        merged.setdefault(number, []).extend(versions)
    return merged


@dataclass(slots=True)
class _Change:
    """A pending change of a directory: `name` gets `inode`, or loses it; a rename also takes `source` away."""

    name: str
    inode: _Inode | None
    source: str | None = None

    def apply(self, names: dict[str, _Inode]) -> None:
        if self.source is not None:
            names.pop(self.source, None)
        if self.inode is None:
            names.pop(self.name, None)
        else:
            names[self.name] = self.inode


@dataclass(slots=True)
class _Directory:
    durable: dict[str, _Inode] = field(default_factory=dict)
    names: dict[str, _Inode] = field(default_factory=dict)
    pending: list[_Change] = field(default_factory=list)

    def change(self, change: _Change) -> None:
        change.apply(self.names)
        self.pending.append(change)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.pending = []

    def after_power_loss(self, rng: Random) -> dict[str, _Inode]:
        left = dict(self.durable)
        lose_renames = rng.random() < 0.2
        for change in self.pending[: rng.randint(0, len(self.pending))]:
            if change.source is not None and lose_renames and rng.random() < 0.5:
                continue
            change.apply(left)
        return left


@dataclass(slots=True)
class Fault:
    """Fails operations of one kind with `error`: the next `count` ones after `skip` others, or all."""

    operation: str  # "write", "sync", "create", "rename", "remove", "sync_directory"
    error: int = errno.EIO
    skip: int = 0
    count: int | None = 1
    path: str = ""  # a part of the path; empty = any

    def hits(self, operation: str, path: str) -> bool:
        if operation != self.operation or self.path not in path or self.count == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.count is not None:
            self.count -= 1
        return True


class SimFile:
    """An open file of a `SimDisk`. It goes on working after the file is removed, as on Linux."""

    __slots__ = ("_disk", "_inode", "_open", "_writable", "path")

    def __init__(self, disk: SimDisk, inode: _Inode, path: str, writable: bool) -> None:
        self._disk = disk
        self._inode = inode
        self._writable = writable
        self._open = True
        self.path = path

    def _check(self) -> None:
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)

    def read(self, position: int, size: int) -> bytes:
        self._check()
        self._disk.alive()
        return bytes(self._inode.content[position : position + size])

    def write(self, position: int, data: bytes) -> None:
        self._check()
        if not self._writable:
            raise OSError(errno.EBADF, "opened for reading", self.path)
        self._disk.write(self._inode, self.path, position, bytes(data))

    def write_parts(self, position: int, parts: Sequence[bytes]) -> None:
        self.write(position, b"".join(parts))

    def sync(self) -> None:
        self._check()
        self._disk.sync(self._inode, self.path)

    def size(self) -> int:
        self._check()
        self._disk.alive()
        return len(self._inode.content)

    def close(self) -> None:
        self._open = False


class SimDisk:
    """`Files` in memory. `operations` counts the boundaries passed so far: the places where it can crash."""

    def __init__(self, sector: int = SECTOR, capacity: int | None = None) -> None:
        self.sector = sector
        self.capacity = capacity  # bytes; may be raised while in use
        self.operations = 0
        self.faults: list[Fault] = []
        self.trace: Callable[[str], None] | None = None
        self._directories: dict[str, _Directory] = {"": _Directory()}
        self._crash_at: int | None = None
        self._dead = False
        self._torn: tuple[int, int] | None = None

    # -- stopping and failing

    def crash_at(self, operation: int) -> None:
        """Raise `Crash` instead of the given operation (counted from 0, as `operations` counts), and ever after."""
        self._crash_at = operation

    def fail(
        self, operation: str, *, error: int = errno.EIO, skip: int = 0, count: int | None = 1, path: str = ""
    ) -> Fault:
        fault = Fault(operation, error, skip, count, path)
        self.faults.append(fault)
        return fault

    def tear_write(self, error: int, size: int) -> None:
        """Fail the next write with `error`, after so many of its bytes."""
        self._torn = (error, size)

    def crash(self, rng: Random) -> SimDisk:
        """A disk as a loss of power could leave it. This disk stops working."""
        self._dead = True
        left = SimDisk(self.sector, self.capacity)
        inodes: dict[int, _Inode] = {}
        for path, directory in self._directories.items():
            names = {}
            for name, inode in directory.after_power_loss(rng).items():
                if id(inode) not in inodes:
                    inodes[id(inode)] = inode.after_power_loss(rng, self.sector)
                names[name] = inodes[id(inode)]
            left._directories[path] = _Directory(dict(names), dict(names))
        return left

    def kill(self) -> SimDisk:
        """The disk as the end of the process alone leaves it: all that it wrote, durable or not as before."""
        self._dead = True
        left = SimDisk(self.sector, self.capacity)
        left._directories = self._directories
        return left

    def copy(self) -> SimDisk:
        """An independent disk with the same contents, all of it durable."""
        copy = SimDisk(self.sector, self.capacity)
        for path, directory in self._directories.items():
            names = {
                name: _Inode(bytearray(inode.content), bytearray(inode.content))
                for name, inode in directory.names.items()
            }
            copy._directories[path] = _Directory(dict(names), names)
        return copy

    @property
    def dead(self) -> bool:
        return self._dead

    def alive(self) -> None:
        if self._dead:
            raise Crash

    def _boundary(self, operation: str, path: str) -> None:
        self.alive()
        if self.trace is not None:
            self.trace(f"{self.operations} {operation} {path}")
        if self.operations == self._crash_at:
            self._dead = True
            raise Crash
        self.operations += 1
        for fault in self.faults:
            if fault.hits(operation, path):
                raise OSError(fault.error, os.strerror(fault.error), path)

    def used(self) -> int:
        inodes = {id(inode): inode for directory in self._directories.values() for inode in directory.names.values()}
        return sum(len(inode.content) for inode in inodes.values())

    def _room(self, wanted: int) -> int:
        return wanted if self.capacity is None else max(0, min(wanted, self.capacity - self.used()))

    # -- open files

    def write(self, inode: _Inode, path: str, position: int, data: bytes) -> None:
        self._boundary("write", path)
        if self._torn is not None:
            (error, size), self._torn = self._torn, None
            inode.write(position, data[:size], self.sector)
            raise OSError(error, os.strerror(error), path)
        growth = max(0, position + len(data) - len(inode.content))
        fits = len(data) - (growth - self._room(growth))
        # A process can be killed in the middle of a write: that is a boundary of its own.
        half = min(fits, (len(data) // (2 * self.sector)) * self.sector)
        inode.write(position, data[:half], self.sector)
        if self.operations == self._crash_at:
            self._dead = True
            raise Crash
        self.operations += 1
        inode.write(position + half, data[half:fits], self.sector)
        if fits < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def sync(self, inode: _Inode, path: str) -> None:
        try:
            self._boundary("sync", path)
        except OSError:
            inode.sync_failed(self.sector)
            raise
        inode.sync(self.sector)

    # -- the tree

    def _split(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rpartition("/")
        if parent not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._directories[parent], name

    def _find(self, path: str) -> _Inode:
        directory, name = self._split(path)
        if name not in directory.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return directory.names[name]

    def make_directory(self, path: str) -> None:
        self.alive()
        parts = path.split("/") if path else []
        for depth in range(1, len(parts) + 1):
            made = "/".join(parts[:depth])
            if made not in self._directories:
                self._boundary("make_directory", made)
                self._directories[made] = _Directory()

    def list(self, directory: str) -> list[str]:
        self.alive()
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        prefix = f"{directory}/" if directory else ""
        below = [path.removeprefix(prefix) for path in self._directories if path and path.startswith(prefix)]
        return sorted([*self._directories[directory].names, *(name for name in below if "/" not in name)])

    def open(self, path: str, *, writable: bool) -> SimFile:
        self.alive()
        return SimFile(self, self._find(path), path, writable)

    def create(self, path: str, size: int) -> SimFile:
        directory, name = self._split(path)
        self._boundary("create", path)
        existing = directory.names.get(name)
        freed = 0 if existing is None or self.capacity is None else len(existing.content)
        if self._room(size + freed) < size:
            if existing is not None:  # emptied by then, and removed when its space could not be reserved
                existing.empty(self.sector)
                directory.change(_Change(name, None))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if existing is None:
            existing = _Inode()
            directory.change(_Change(name, existing))
        else:
            existing.empty(self.sector)
        existing.resize(size)
        return SimFile(self, existing, path, writable=True)

    def rename(self, source: str, target: str) -> None:
        inode = self._find(source)
        directory, source_name = self._split(source)
        target_directory, target_name = self._split(target)
        self._boundary("rename", f"{source} → {target}")
        if target_directory is directory:
            directory.change(_Change(target_name, inode, source_name))
        else:  # two directories have no order between them: after a crash it may be in both, or in neither
            target_directory.change(_Change(target_name, inode))
            directory.change(_Change(source_name, None))

    def remove(self, path: str) -> None:
        self._find(path)
        self._boundary("remove", path)
        directory, name = self._split(path)
        directory.change(_Change(name, None))

    def sync_directory(self, directory: str) -> None:
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        self._boundary("sync_directory", directory)
        self._directories[directory].sync()

    # -- for tests that damage files

    def paths(self) -> tuple[str, ...]:
        """Every file, sorted."""
        found = (
            f"{path}/{name}" if path else name
            for path, directory in self._directories.items()
            for name in directory.names
        )
        return tuple(sorted(found))

    def content(self, path: str) -> bytes:
        return bytes(self._find(path).content)

    def replace(self, path: str, data: bytes) -> None:
        """Put other bytes into a file, durably, behind the log's back."""
        inode = self._find(path)
        inode.durable, inode.content = bytearray(data), bytearray(data)
        inode.unsynced, inode.doubtful, inode.sizes, inode.past = [], {}, [], []

    def delete(self, path: str) -> None:
        """Take a file away, durably, behind the log's back."""
        directory, name = self._split(path)
        del directory.names[name]
        directory.durable.pop(name, None)
