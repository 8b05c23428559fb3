"""The tables of a pipeline, without Spark: Delta tables of a continuous one, warehouse tables of a declarative one."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from penstock.spark.pipelines.project import Project


def table_names(project: Project) -> list[str]:
    from pyarrow.fs import FileSelector, FileSystem, FileType

    filesystem, path = FileSystem.from_uri(_folder(project))
    found = filesystem.get_file_info(FileSelector(path, allow_not_found=True))
    return sorted(unquote(info.base_name) for info in found if info.type == FileType.Directory)


def table_rows(project: Project, name: str) -> ds.Dataset:
    """The current rows of a table, read lazily."""
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    url = project.table(name) if project.file.kind == "continuous" else f"{project.warehouse}/{name}"
    if DeltaTable.is_deltatable(url):
        return DeltaTable(url).to_pyarrow_dataset()
    return ds.dataset(url, format="parquet", partitioning="hive")


def _folder(project: Project) -> str:
    return f"{project.place}/tables" if project.file.kind == "continuous" else project.warehouse
