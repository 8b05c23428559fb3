"""`penstock pipeline init`: a project folder from the templates in this package."""

from __future__ import annotations

import os
from importlib.resources import files
from importlib.resources.abc import Traversable

from penstock.spark.pipelines.project import FILE, Kind, ProjectError, check_name

FILLED = (".toml", ".yml", ".md")  # code is copied unchanged


def write_project(
    directory: str, name: str, kind: Kind, broker: str = "127.0.0.1:8815", memory: str = "1g"
) -> list[str]:
    """Write a new project into a directory that is empty or does not exist. Returns the relative paths of its files.
    Raises ProjectError."""
    check_name(name)
    directory = os.path.abspath(directory)
    if os.path.exists(os.path.join(directory, FILE)):
        raise ProjectError(f"{directory} holds a pipeline already")
    try:
        if os.path.isdir(directory) and os.listdir(directory):
            raise ProjectError(f"{directory} is not empty; a pipeline needs a folder of its own")
        os.makedirs(directory, exist_ok=True)
        fill = {
            "{name}": name,
            "{broker}": broker,
            "{memory}": memory,
            "{storage}": f"file://{directory}/state/checkpoints",
        }
        templates = files(__package__) / "templates"
        return sorted(path for part in ("common", kind) for path in _copy(templates / part, directory, "", fill))
    except OSError as error:
        raise ProjectError(f"{error.filename or directory}: {error.strerror}") from error


def _copy(source: Traversable, target: str, below: str, fill: dict[str, str]) -> list[str]:
    written = []
    for item in source.iterdir():
        if item.name.startswith("__"):
            continue
        path = os.path.join(below, item.name)
        if item.is_dir():
            os.makedirs(os.path.join(target, path), exist_ok=True)
            written += _copy(item, target, path, fill)
            continue
        text = item.read_text()
        if item.name.endswith(FILLED):
            for token, value in fill.items():
                text = text.replace(token, value)
        with open(os.path.join(target, path), "x") as stream:
            stream.write(text)
        written.append(path)
    return written
