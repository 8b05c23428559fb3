"""Resets a continuous pipeline, or some of its flows: removes their checkpoints, and the tables that they wrote, since
repeated records would be duplicates there. Records in topics stay: a log is append-only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from penstock.spark.pipelines import checkpoints
from penstock.spark.pipelines.project import Project, ProjectError
from penstock.spark.pipelines.quarantine import SUFFIX

QUALITY = "_quality"


class Removal(NamedTuple):
    kind: str  # checkpoint, table
    name: str
    path: str  # or a URL


def flows(project: Project) -> list[str]:
    """The flows with a checkpoint."""
    folders, root = checkpoints.folders_at(project.checkpoints)
    return [found.name for found in checkpoints.find(folders, root)]


def plan(project: Project, names: Sequence[str], *, tables: bool) -> list[Removal]:
    """The directories to remove in order to reset these flows; all flows, if none is named. A table belongs to the flow
    of the same name, and so do its quarantine and the counts of its expectations. Raises ProjectError."""
    folders, root = checkpoints.folders_at(project.checkpoints)
    found = {each.name: each.path for each in checkpoints.find(folders, root)}
    unknown = sorted(set(names) - found.keys())
    if unknown:
        raise ProjectError(f"there is no flow {', '.join(unknown)}; there are: {', '.join(sorted(found)) or 'none'}")
    chosen = list(names) or sorted(found)
    removals = [Removal("checkpoint", name, found[name]) for name in chosen]
    if tables:
        wanted = {name for flow in chosen for name in (flow, flow + SUFFIX, flow + QUALITY)}
        there = _tables(project)
        removals += [Removal("table", name, project.table(name)) for name in there if not names or name in wanted]
    return removals


def remove(project: Project, removals: Sequence[Removal]) -> None:
    from pyarrow.fs import FileSystem

    for removal in removals:
        url = removal.path if removal.kind == "table" else _same_place(project.checkpoints, removal.path)
        filesystem, path = FileSystem.from_uri(url)
        filesystem.delete_dir(path)


def _tables(project: Project) -> list[str]:
    from pyarrow.fs import FileSelector, FileSystem, FileType

    filesystem, path = FileSystem.from_uri(f"{project.place}/tables")
    found = filesystem.get_file_info(FileSelector(path, allow_not_found=True))
    return sorted(unquote(info.base_name) for info in found if info.type == FileType.Directory)


def _same_place(url: str, path: str) -> str:
    """The URL of a path on the same file system as a URL."""
    scheme, separator, _ = url.partition("://")
    return path if scheme == "file" else f"{scheme}{separator}{path}"
