"""`penstock pipeline`: make a pipeline's project folder, run it, and see how far it is."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from typing import Annotated, TextIO

import typer

from penstock.cli.failure import fail
from penstock.cli.pipeline_view import Lines, clock, progress_table
from penstock.cli.tables import print_aligned
from penstock.spark.pipelines.declarative import Refresh
from penstock.spark.pipelines.driver import Driver
from penstock.spark.pipelines.java import JavaMissing, find_java
from penstock.spark.pipelines.location import RunState, is_running, read_state
from penstock.spark.pipelines.progress import Ends, FlowProgress, Watch, seconds_text
from penstock.spark.pipelines.project import ENV_BROKER, Kind, Project, ProjectError, load
from penstock.spark.pipelines.runner import Event
from penstock.spark.pipelines.scaffold import write_project
from penstock.spark.pipelines.session import remote

app = typer.Typer(
    help="Pipelines on Spark: topics to tables, results to topics.", no_args_is_help=True, rich_markup_mode=None
)

Directory = Annotated[str, typer.Argument(metavar="DIR", help="The project folder.")]
Broker = Annotated[
    str | None,
    typer.Option("--broker", metavar="HOST:PORT", help="A broker's Flight address, instead of pipeline.toml's."),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[2], spark://HOST:7077, sc://HOST:15002 or any other that Spark knows.",
    ),
]

LOOK_SECONDS = 1.0
RETRY_SECONDS = 10.0  # between two attempts to reach a log
UNDER_WAY = ("queued", "planning", "starting", "running")


@app.command()
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name; also the folder's.")],
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="declarative (runs and ends) or continuous (until stopped).")
    ] = "declarative",
    directory: Annotated[str | None, typer.Option("--directory", metavar="DIR", help="Another folder.")] = None,
    broker: Annotated[str, typer.Option("--broker", metavar="HOST:PORT", help="The broker's Flight address.")] = (
        "127.0.0.1:8815"
    ),
) -> None:
    """Write a new project folder, with an example to change."""
    kinds: dict[str, Kind] = {"declarative": "declarative", "continuous": "continuous"}
    if kind not in kinds:
        fail(f"--kind {kind}: expected declarative or continuous", 2)
    folder = directory or name
    try:
        written = write_project(folder, name, kinds[kind], broker)
    except ProjectError as error:
        fail(error)
    for path in written:
        typer.echo(f"  {os.path.join(folder, path)}")
    typer.echo(f"Check it with: penstock pipeline dry-run {folder}")
    typer.echo(f"Run it with:   penstock pipeline run {folder}")


@app.command()
def run(
    directory: Directory = ".",
    master: Master = None,
    broker: Broker = None,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option("--full-refresh", metavar="TABLE", help="Compute only this, from the beginning. Repeatable."),
    ] = None,
    full_refresh_all: Annotated[bool, typer.Option("--full-refresh-all", help="Compute everything again.")] = False,
    refresh: Annotated[
        list[str] | None, typer.Option("--refresh", metavar="TABLE", help="Bring only this up to date. Repeatable.")
    ] = None,
) -> None:
    """Run a pipeline: a declarative one until all that is new is taken, a continuous one until Ctrl-C or SIGTERM."""
    project = _project(directory, broker)
    tables = Refresh(full_refresh or (), full_refresh_all, refresh or ())
    if project.file.kind == "continuous" and tables != Refresh((), False, ()):
        fail(
            "--full-refresh and --refresh are for declarative pipelines. To begin a continuous one anew, remove its "
            f"checkpoints and tables: {project.place}",
            2,
        )
    raise typer.Exit(_drive(project, master, broker, tables))


@app.command("dry-run")
def dry_run(directory: Directory = ".", master: Master = None, broker: Broker = None) -> None:
    """Check a pipeline without running it: its code, its sources, its columns. Topics are looked for by a run only."""
    project = _project(directory, broker)
    raise typer.Exit(_drive(project, master, broker, Refresh(dry=True)))


@app.command()
def status(directory: Directory = ".", broker: Broker = None) -> None:
    """Show how far a pipeline is: rows, lag of each partition, last batch. Also while another process runs it."""
    project = _project(directory, broker)
    state = read_state(project.local)
    flows = _watch(project).look()
    if state is None and not flows:
        typer.echo(f"{project.name}: has never run")
        return
    running = is_running(project.local)
    typer.echo(f"{project.name}: {_said(state, running)}")
    print_aligned(progress_table(flows, _phases(state, running), time.time(), ""))


def _said(state: RunState | None, running: bool) -> str:
    if state is None:
        return "running" if running else "not running"
    who = f"process {state.pid} on {state.master}"
    if running:
        return f"{state.phase}, {who}, since {clock(state.started)}"
    if state.ended is None:
        return f"killed, {who} began at {clock(state.started)}; the next run goes on where it was"
    tail = f": {state.error.splitlines()[0]}" if state.error else ""
    return f"{state.phase} at {clock(state.ended)}, after {seconds_text(state.ended - state.started)}{tail}"


def _phases(state: RunState | None, running: bool) -> dict[str, str]:
    """The outcome of each flow. After the end of a run, nothing in it runs any more, whatever its last word was."""
    if state is None or running:
        return {} if state is None else state.flows
    return {flow: "stopped" if phase in UNDER_WAY else phase for flow, phase in state.flows.items()}


def _project(directory: str, broker: str | None) -> Project:
    environment = dict(os.environ) | ({ENV_BROKER: broker} if broker else {})
    try:
        return load(directory, environment)
    except ProjectError as error:
        fail(error)


def _watch(project: Project) -> Watch:
    return Watch(project.checkpoints, _log_ends(project))


def _log_ends(project: Project) -> Callable[[Collection[str]], Ends | None]:
    """Asks the log for its ends; lag is unknown while it does not answer, and the rest is shown all the same."""
    from penstock.flight.connect import connect
    from penstock.flight.errors import FlightLogError

    again = 0.0

    def ends(topics: Collection[str]) -> Ends | None:
        nonlocal again
        if time.monotonic() < again:
            return None
        try:
            return {place: bounds.high_watermark for place, bounds in connect(project.broker).bounds(topics).items()}
        except FlightLogError:
            again = time.monotonic() + RETRY_SECONDS
            return None

    return ends


def _drive(project: Project, master: str | None, broker: str | None, refresh: Refresh) -> int:
    """Run it, show its progress, and return the exit code."""
    if remote(os.environ, master) is None:
        try:
            find_java(os.environ)
        except JavaMissing as error:
            fail(error)
    _needs_pyspark()
    environment = dict(os.environ) | ({ENV_BROKER: broker} if broker else {})
    began = time.monotonic()
    driver = Driver(project, master, refresh, environment)
    with _stopping(driver), _shown(project, refresh) as show:
        events: list[Event] | None
        looked = 0.0
        while (events := driver.events(0.25)) is not None:
            show(events, (now := time.monotonic()) - looked >= LOOK_SECONDS and not refresh.dry)
            looked = now if now - looked >= LOOK_SECONDS else looked
        show([], not refresh.dry, True)
    code = driver.close()
    if code < 0:
        typer.echo(f"penstock: the process that runs Spark was killed; its log is {driver.log}", err=True)
        return 1
    if code == 1:
        typer.echo(f"penstock: all of it is in {driver.log}", err=True)
    elif code == 0:
        typer.echo(f"{'checked' if refresh.dry else 'ended'} after {seconds_text(time.monotonic() - began)}")
    return code


def _needs_pyspark() -> None:
    import importlib.util

    if importlib.util.find_spec("pyspark") is None:
        fail("PySpark is not installed: pip install 'penstock[spark]'")


def _say(text: str, stream: TextIO | None = None) -> None:
    """Not by typer.echo: that goes past the table which changes in place at a terminal, and is painted over by it."""
    print(text, file=stream, flush=True)


@contextlib.contextmanager
def _stopping(driver: Driver) -> Iterator[None]:
    """The first signal asks the run to end, the second does not wait."""
    stopping = False

    def on_signal(_number: int, _frame: object) -> None:
        nonlocal stopping
        if stopping:
            driver.kill()
            return
        stopping = True
        _say("stopping; a second signal does not wait", sys.stderr)
        driver.stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _shown(project: Project, refresh: Refresh) -> Iterator[Callable[..., None]]:
    """Messages and progress: in place at a terminal, else in lines."""
    watch = _watch(project)
    phases: dict[str, str] = {}
    title = f"{project.name} ({project.file.kind})"
    lines = Lines()

    def print_events(events: list[Event]) -> None:
        for event in events:
            if event.kind == "ready":
                _say("Spark is up")
            elif event.kind == "flow":
                phase, _, detail = event.text.partition("\n")
                phases[event.flow] = phase
                if detail or not sys.stdout.isatty():
                    _say(detail or f"{event.flow}: {phase}")
            elif event.kind == "failed":
                _say(f"penstock: {event.text}", sys.stderr)
            elif event.kind == "line":
                _say(event.text)

    if not sys.stdout.isatty() or refresh.dry:

        def plain(events: list[Event], look: bool, final: bool = False) -> None:
            print_events(events)
            if look:
                for line in lines.due(watch.look(), time.time(), final=final):
                    typer.echo(line)
            sys.stdout.flush()

        yield plain
        return
    from rich.live import Live

    flows: list[FlowProgress] = []
    with Live(
        progress_table(flows, phases, time.time(), title), auto_refresh=False, redirect_stderr=sys.stderr.isatty()
    ) as live:

        def in_place(events: list[Event], look: bool, final: bool = False) -> None:
            nonlocal flows
            print_events(events)
            if look or events or final:
                flows = watch.look()
                live.update(progress_table(flows, phases, time.time(), title), refresh=True)

        yield in_place
