"""Pipelines next to this broker, for the administration API: that of `penstock up`, or of `[pipeline]`.

All information comes from the project's directory, which `penstock pipeline status` reads too; Spark is not loaded."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.admin.environment import Ends, PipelinePartition, PipelineQuery, PipelineView
from penstock.config.settings import Settings

if TYPE_CHECKING:
    from penstock.flight.log import TopicPartition
    from penstock.spark.pipelines.location import FlowTrouble
    from penstock.spark.pipelines.progress import FlowProgress
    from penstock.spark.pipelines.project import Project

DIRECTORY = "pipeline"  # in the data directory


def pipeline_views(settings: Settings, data_dir: str, ends: Ends) -> Sequence[PipelineView]:
    """The pipelines. Reads files: not on the event loop."""
    directory = _directory(settings, data_dir)
    if not os.path.exists(os.path.join(directory, "pipeline.toml")):
        return ()
    from penstock.spark.pipelines.project import ProjectError, load

    try:
        return (_view(load(directory, os.environ, connects=False), ends),)
    except ProjectError as error:
        name = os.path.basename(os.path.abspath(directory))
        return (PipelineView(name, "", directory, False, "", None, None, "", [], str(error)),)


def pipeline_scopes(settings: Settings, data_dir: str) -> Collection[tuple[str, str]]:
    """The tenants and namespaces of their topics. Reads files: not on the event loop."""
    directory = _directory(settings, data_dir)
    if not os.path.exists(os.path.join(directory, "pipeline.toml")):
        return ()
    from penstock.spark.pipelines.project import ProjectError, load

    try:
        return (load(directory, os.environ, connects=False).scope,)
    except ProjectError:
        return ()


def restart_pipeline(settings: Settings, data_dir: str, name: str) -> int | None:
    """Ask the pipeline's process to exit, so that its supervisor starts it again. Returns its pid; None if it is not
    running. Raises LookupError if there is no such pipeline, or OSError. Not on the event loop."""
    from penstock.spark.pipelines.location import ask_to_restart
    from penstock.spark.pipelines.project import ProjectError, load

    try:
        project = load(_directory(settings, data_dir), os.environ, connects=False)
    except ProjectError as error:
        raise LookupError(name) from error
    if project.name != name:
        raise LookupError(name)
    return ask_to_restart(project.local)


def _directory(settings: Settings, data_dir: str) -> str:
    return settings.pipeline.directory or os.path.join(data_dir, DIRECTORY)


def _view(project: Project, ends: Ends) -> PipelineView:
    from penstock.spark.pipelines.location import flow_phases, is_running, read_state
    from penstock.spark.pipelines.progress import FlowProgress, Watch

    state, running = read_state(project.local), is_running(project.local)

    def known(topics: Collection[str]) -> Mapping[TopicPartition, int] | None:
        from penstock.flight.log import TopicPartition

        found = ends(project.scope, topics)
        if found is None:
            return None
        return {TopicPartition(*place): end for place, end in found.items() if place[0] in topics}

    flows = {flow.name: flow for flow in Watch(project.checkpoints, known).look()}
    phase = "" if state is None else state.phase
    if state is not None and not running and state.ended is None:
        phase = "killed"
    words = flow_phases(state, running)
    troubles = {} if state is None else state.troubles
    without_batch = {name: FlowProgress(name, None, None, None, None, ()) for name in words if name not in flows}
    return PipelineView(
        project.name,
        project.file.kind,
        project.directory,
        running,
        phase,
        None if state is None else state.started,
        None if state is None else state.ended,
        "" if state is None else state.error,
        [
            _query(flow, words.get(name, ""), troubles.get(name))
            for name, flow in sorted((flows | without_batch).items())
        ],
    )


def _query(flow: FlowProgress, state: str, trouble: FlowTrouble | None) -> PipelineQuery:
    from penstock.spark.pipelines.supervision import first_line

    return PipelineQuery(
        *(flow.name, state, flow.rows, flow.rate, flow.batch, flow.committed, flow.lag, flow.eta),
        [PipelinePartition(*each.place, each.position, each.lag) for each in flow.partitions],
        *((0, "") if trouble is None else (trouble.restarts, first_line(trouble.error))),
    )
