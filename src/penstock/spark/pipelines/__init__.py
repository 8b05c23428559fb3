"""Pipelines on Spark: project folders, and running them. `current()` is for the code inside a project. Start at
`runner.py`."""

from penstock.spark.pipelines.project import Project, ProjectError, current

__all__ = ["Project", "ProjectError", "current"]
