"""`penstock pipeline`: creates a pipeline's project folder, runs it, shows its progress, stops and resets it."""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Annotated, BinaryIO, TextIO

import typer

from penstock.cli.failure import fail
from penstock.cli.output import Output, OutputOption, show_json
from penstock.cli.pipeline_view import Lines, clock, progress_table, status_document
from penstock.cli.questions import Yes, confirm
from penstock.cli.tables import print_aligned, printable
from penstock.retry import RestartBackoff
from penstock.spark.pipelines.declarative import Refresh
from penstock.spark.pipelines.driver import Driver
from penstock.spark.pipelines.java import JavaMissing, find_java
from penstock.spark.pipelines.location import (
    LOG,
    PipelineBusy,
    PipelineLocation,
    RunState,
    ask_to_restart,
    ask_to_stop,
    flow_phases,
    is_running,
    read_state,
    restart_is_due,
    wait_for_end,
)
from penstock.spark.pipelines.log_ends import log_ends
from penstock.spark.pipelines.progress import FlowProgress, Watch, seconds_text
from penstock.spark.pipelines.project import ENV_BROKER, Kind, Project, ProjectError, load
from penstock.spark.pipelines.report import write_report
from penstock.spark.pipelines.reset import plan, remove
from penstock.spark.pipelines.runner import FAILED, LOST, Event
from penstock.spark.pipelines.scaffold import write_project
from penstock.spark.pipelines.session import remote
from penstock.spark.pipelines.supervision import first_line

app = typer.Typer(
    help="Pipelines on Spark: topics to tables, results to topics.\n\n  penstock pipeline init shop",
    no_args_is_help=True,
    rich_markup_mode=None,
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
        help="Spark master: local[2], spark://HOST:7077, sc://HOST:15002 or any other that Spark supports.",
    ),
]

LOOK_SECONDS = 1.0
TAIL_BYTES = 4 << 20  # of a log, from its end, in which the last lines are searched
RESTART_SECONDS = (1.0, 60.0)  # after Spark was killed: first and maximum wait
HEALTHY_SECONDS = 300.0


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
    """Create a project folder with an example to start from.

    penstock pipeline init shop
    """
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
        typer.Option(
            "--full-refresh", metavar="TABLE", help="Recompute only this table from the beginning. Repeatable."
        ),
    ] = None,
    full_refresh_all: Annotated[bool, typer.Option("--full-refresh-all", help="Recompute everything.")] = False,
    refresh: Annotated[
        list[str] | None, typer.Option("--refresh", metavar="TABLE", help="Update only this table. Repeatable.")
    ] = None,
) -> None:
    """Run a pipeline: a declarative one until all that is new is taken, a continuous one until Ctrl-C or SIGTERM.

    penstock pipeline run shop --master local[2]
    """
    project = _project(directory, broker)
    tables = Refresh(full_refresh or (), full_refresh_all, refresh or ())
    if project.file.kind == "continuous" and tables != Refresh((), False, ()):
        fail(
            "--full-refresh and --refresh are for declarative pipelines. A continuous one begins anew after: "
            f"penstock pipeline reset {directory}",
            2,
        )
    raise typer.Exit(_drive(project, master, broker, tables))


@app.command("dry-run")
def dry_run(directory: Directory = ".", master: Master = None, broker: Broker = None) -> None:
    """Check a pipeline without running it: its code, its sources, its columns. Topics are looked for by a run only.

    penstock pipeline dry-run shop
    """
    project = _project(directory, broker)
    raise typer.Exit(_drive(project, master, broker, Refresh(dry=True)))


@app.command()
def status(directory: Directory = ".", broker: Broker = None, output: OutputOption = Output.TABLE) -> None:
    """Show a pipeline's progress: rows, lag of each partition, last batch, failures. Also while another process runs
    it.

    penstock pipeline status shop
    """
    project = _project(directory, broker, connects=False)
    state = read_state(project.local)
    flows = _watch(project).look()
    running = is_running(project.local)
    phases = flow_phases(state, running)
    if output is not Output.TABLE:
        show_json(output, status_document(project.name, state, running, flows, phases))
        return
    if state is None and not flows:
        typer.echo(f"{project.name}: has never run")
        return
    typer.echo(f"{project.name}: {_said(state, running)}")
    print_aligned(progress_table(flows, phases, time.time(), ""))
    for flow, trouble in (state.troubles if state is not None else {}).items():
        restarts = "never restarted" if not trouble.restarts else f"{trouble.restarts} restarts"
        typer.echo(f"{flow}: {restarts}; last failure: {printable(first_line(trouble.error))}")


@app.command()
def report(directory: Directory = ".") -> None:
    """Write a pipeline's report: one HTML file, made of its tables by the project's report.py. Runs write it too.

    penstock pipeline report shop
    """
    project = _project(directory, None, connects=False)
    try:
        typer.echo(write_report(project))
    except ProjectError as error:
        fail(error)


@app.command()
def logs(
    directory: Directory = ".",
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="The last lines to show.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines, until Ctrl-C.")] = False,
) -> None:
    """Show a pipeline's log: Spark's own, and full error messages.

    penstock pipeline logs shop
    """
    path = os.path.join(_project(directory, None, connects=False).local, LOG)
    try:
        with open(path, "rb") as stream:
            for line in tail(stream, lines):
                typer.echo(line.decode(errors="replace"), nl=False)
            if follow:
                _follow(path, stream)
    except FileNotFoundError:
        fail(f"{path}: there is no log; the pipeline has never run")
    except KeyboardInterrupt:
        raise typer.Exit from None


@app.command()
def stop(
    directory: Directory = ".",
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="How long to wait for it to stop.")] = 120.0,
) -> None:
    """Stop a pipeline that another process runs, and wait for it. `penstock up` restarts its own.

    penstock pipeline stop shop
    """
    project = _project(directory, None, connects=False)
    pid = ask_to_stop(project.local)
    if pid is None:
        if is_running(project.local):
            fail("the pipeline is only just starting; try again in a moment", 3)
        typer.echo(f"{project.name}: not running")
        return
    if not wait_for_end(project.local, seconds):
        fail(f"process {pid} has not ended after {seconds:g} s; it goes on ending", 1)
    typer.echo(f"{project.name}: stopped; the next run goes on where it was")


@app.command()
def restart(
    directory: Directory = ".",
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="How long to wait for the next run.")] = 120.0,
) -> None:
    """Stop a pipeline that another process runs, and let that process start it again: with changed code, for instance.

    penstock pipeline restart shop
    """
    project = _project(directory, None, connects=False)
    pid = ask_to_restart(project.local)
    if pid is None:
        if is_running(project.local):
            fail("the pipeline is only just starting; try again in a moment", 3)
        fail(f"{project.name} is not running; start it with: penstock pipeline run {directory}", 3)
    deadline = time.monotonic() + seconds
    while (state := read_state(project.local)) is None or state.pid == pid:
        if time.monotonic() > deadline:
            fail(f"process {pid} has not been followed by another after {seconds:g} s", 1)
        time.sleep(0.25)
    typer.echo(f"{project.name}: process {state.pid} goes on where process {pid} was")


@app.command()
def reset(
    directory: Directory = ".",
    flow: Annotated[
        list[str] | None, typer.Option("--flow", metavar="NAME", help="Only this flow. Repeatable.")
    ] = None,
    keep_tables: Annotated[
        bool, typer.Option("--keep-tables", help="Keep the tables; records that are read again are appended again.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Start a continuous pipeline over: delete its checkpoints and the tables that its flows wrote. Topics stay.

    penstock pipeline reset shop --yes
    """
    project = _project(directory, None, connects=False)
    if project.file.kind == "declarative":
        fail(f"a declarative pipeline begins anew with: penstock pipeline run {directory} --full-refresh-all", 2)
    try:
        with PipelineLocation(project.local):
            removals = plan(project, flow or (), tables=not keep_tables)
            if not removals:
                typer.echo(f"{project.name}: has nothing to remove")
                return
            for removal in removals:
                typer.echo(f"  {removal.kind:<12}{removal.path}")
            confirm(f"Remove these {len(removals)}? What they hold is read again by the next run.", yes)
            remove(project, removals)
    except (PipelineBusy, ProjectError) as error:
        fail(error)
    typer.echo(f"{project.name}: begins anew; run it with: penstock pipeline run {directory}")


def _said(state: RunState | None, running: bool) -> str:
    if state is None:
        return "running" if running else "not running"
    who = f"process {state.pid} on {state.master}"
    if running:
        return f"{state.phase}, {who}, since {clock(state.started)}"
    if state.ended is None:
        return f"killed, {who} began at {clock(state.started)}; the next run goes on where it was"
    tail = f": {printable(first_line(state.error))}" if state.error else ""
    return f"{state.phase} at {clock(state.ended)}, after {seconds_text(state.ended - state.started)}{tail}"


def tail(stream: BinaryIO, lines: int) -> list[bytes]:
    """The last lines of a file, which is then positioned at its end."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - TAIL_BYTES))
    found = stream.read().splitlines(keepends=True)
    return found[-lines:] if lines else []


def _follow(path: str, stream: BinaryIO) -> None:
    """Print what is added to a log, also to the one that replaces it when it has become large (`Driver`)."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with contextlib.ExitStack() as opened:
        while True:
            is_old = os.path.exists(path) and not os.path.samestat(os.stat(path), os.fstat(stream.fileno()))
            text = stream.read(1 << 16)
            typer.echo(decoder.decode(text), nl=False)
            if not text and is_old:
                stream = opened.enter_context(open(path, "rb"))
            elif not text:
                time.sleep(0.25)


def _project(directory: str, broker: str | None, *, connects: bool = True) -> Project:
    environment = dict(os.environ) | ({ENV_BROKER: broker} if broker else {})
    try:
        return load(directory, environment, connects=connects)
    except ProjectError as error:
        fail(error)


def _watch(project: Project) -> Watch:
    return Watch(project.checkpoints, log_ends(project))


def _drive(project: Project, master: str | None, broker: str | None, refresh: Refresh) -> int:
    """Run the pipeline, show its progress, and return the exit code. A continuous pipeline is restarted if its Spark
    was killed."""
    if remote(os.environ, master) is None:
        try:
            find_java(os.environ)
        except JavaMissing as error:
            fail(error)
    _needs_pyspark()
    environment = dict(os.environ) | ({ENV_BROKER: broker} if broker else {})
    began = time.monotonic()
    goes_on = project.file.kind == "continuous" and not refresh.dry
    backoff = RestartBackoff(*RESTART_SECONDS, HEALTHY_SECONDS)
    while True:
        started = time.monotonic()
        driver = Driver(project, master, refresh, environment)
        with _stopping(driver) as stopping, _shown(project, refresh) as show:
            events: list[Event] | None
            looked = 0.0
            while (events := driver.events(0.25)) is not None:
                show(events, (now := time.monotonic()) - looked >= LOOK_SECONDS and not refresh.dry)
                looked = now if now - looked >= LOOK_SECONDS else looked
            show([], not refresh.dry, True)
            code = driver.close()
            if restart_is_due(project.local) and not stopping.is_set():
                _say("a restart was asked for", sys.stderr)
                continue
            if not (goes_on and (code < 0 or code == LOST)) or stopping.is_set():
                break
            seconds = backoff.delay(time.monotonic() - started)
            _say(f"penstock: Spark is gone (code {code}); it is started again in {seconds:g} s", sys.stderr)
            if stopping.wait(seconds):
                break
    if code < 0:
        typer.echo(f"penstock: the process that runs Spark was killed; its log is {driver.log}", err=True)
        return 1
    if code in (FAILED, LOST):
        typer.echo(f"penstock: all of it is in {driver.log}", err=True)
    elif code == 0:
        typer.echo(f"{'checked' if refresh.dry else 'ended'} after {seconds_text(time.monotonic() - began)}")
    return code


def _needs_pyspark() -> None:
    import importlib.util

    if importlib.util.find_spec("pyspark") is None:
        fail("PySpark is not installed: pip install 'penstock[spark]'")


def _say(text: str, stream: TextIO | None = None) -> None:
    """Print without typer.echo, which bypasses the live table on a terminal and would be overwritten by it."""
    print(text, file=stream, flush=True)


@contextlib.contextmanager
def _stopping(driver: Driver) -> Iterator[threading.Event]:
    """Handle signals: the first asks the run to end, the second kills it. Yields the event that is set by the first."""
    stopping = threading.Event()

    def on_signal(_number: int, _frame: object) -> None:
        if stopping.is_set():
            driver.kill()
            return
        stopping.set()
        _say("stopping; a second signal does not wait", sys.stderr)
        driver.stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _shown(project: Project, refresh: Refresh) -> Iterator[Callable[..., None]]:
    """A function that shows events and progress: in place on a terminal, else as lines."""
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
