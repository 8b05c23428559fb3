"""`penstock up`: a complete setup to try out: the broker, an event generator, and a pipeline on Spark.

This process starts three others in order, restarts those that crash, and stops them in reverse order. Without Java the
pipeline is omitted, and everything else works. Example commands are printed when they work: those on the generator's
topics after the first events, those on the pipeline's tables when these exist.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO

import typer

from penstock.cli import flags
from penstock.cli.failure import fail
from penstock.cli.taken_ports import describe, taken_ports
from penstock.config.settings import Settings
from penstock.retry import RestartBackoff
from penstock.spark.pipelines.declarative import Refresh
from penstock.spark.pipelines.driver import Driver
from penstock.spark.pipelines.java import JavaMissing, find_java
from penstock.spark.pipelines.project import ENV_BROKER, FILE, Project, ProjectError, load
from penstock.spark.pipelines.report import report_file
from penstock.spark.pipelines.scaffold import write_project
from penstock.spark.pipelines.supervision import first_line

PIPELINE = "shop"
GENERATOR_DOORS = ("rustlog", "flymq", "blipmq")  # required by the generator
MORE_DOORS = ("felix", "kimberlite")  # used if they are open
TABLES = ("bronze", "silver_orders", "gold_revenue")
START_SECONDS = 60.0  # for the broker to become ready after its first line
SPARK_SECONDS = 180.0  # for the pipeline's first tables; then its log is mentioned
STOP_SECONDS = 70.0
BACKOFF = (1.0, 60.0)  # seconds before a crashed process is restarted: first, maximum
STEADY_SECONDS = 60.0  # after running this long, a process starts at the first delay again
TURN_SECONDS = 0.25
PR_SET_PDEATHSIG = 1
OURS = {  # defaults of this command
    "log.roll_seconds": ("PENSTOCK_LOG__ROLL_SECONDS", "60"),  # so that the tables have content soon
    "kimberlite.tenants": ("PENSTOCK_KIMBERLITE__TENANTS", "1=default"),  # payments and orders in one tenant
}

_PROCESS = re.compile(r"Process (\d+) is ready")
_DOOR = re.compile(r"^  (\w+) +(\S+:\d+)(?: \(QUIC\).*)?$", re.MULTILINE)


@flags.with_serve_flags
def up(serve: flags.ServeFlags) -> None:
    """Run a broker, a generator of sample events of a shop, and a Spark pipeline that turns them into tables.

    Takes the flags of `penstock serve`. Ctrl-C or SIGTERM shuts everything down cleanly; a second signal exits at once.

    penstock up --data-dir ./data
    """
    effective = flags.effective(serve)
    settings = effective.settings
    taken = taken_ports(settings)
    if taken:  # `make up` needs another hint about flags
        fail(describe(taken, 'make up UP="{}"' if "MAKELEVEL" in os.environ else "penstock up {}"))
    for key, (variable, value) in OURS.items():
        if effective.origin(key) == "default":
            os.environ[variable] = value
    raise typer.Exit(Stack(settings, serve.arguments()).run())


class Stack:
    """Broker, generator and pipeline, from start to stop."""

    def __init__(self, settings: Settings, arguments: Sequence[str]) -> None:
        self._settings = settings
        self._arguments = list(arguments)
        self._data_dir = os.path.abspath(os.path.expanduser(settings.data_dir))
        self._broker: subprocess.Popen[bytes] | None = None
        self._generator: subprocess.Popen[bytes] | None = None
        self._driver: Driver | None = None
        self._project: Project | None = None
        self._signals = 0
        self._addresses: dict[str, str] = {}
        self._pid = 0  # of the broker
        self._tables_shown = self._tables_late = False
        self._why_not = ""  # the reason why there is no pipeline
        self._restart_at: dict[str, float] = {}  # part → time of its restart
        self._began: dict[str, float] = {}
        self._backoff = {name: RestartBackoff(*BACKOFF, STEADY_SECONDS) for name in ("broker", "generator", "pipeline")}

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        try:
            self._start_broker()
            if not self._signals:
                self._plan_pipeline()
                self._start_generator()
                self._start_pipeline()
                typer.echo(self._block())
            return self._watch()
        finally:
            self._stop()

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._signals += 1
        if self._signals > 1:
            self._kill()
            os._exit(1)

    # -- starting

    def _start_broker(self) -> None:
        """Raises typer.Exit if the broker does not become ready, after printing the reason. The banner is printed if it
        has changed."""
        command = [sys.executable, "-m", "penstock.cli.main", "serve", *self._arguments]
        self._broker = broker = _start(command, stdout=subprocess.PIPE)
        self._began["broker"] = time.monotonic()
        assert broker.stdout is not None
        block = ""
        deadline = time.monotonic() + START_SECONDS
        while "is ready" not in block:
            text = _some(broker.stdout, TURN_SECONDS)
            if text is None or (not text and time.monotonic() > deadline):
                raise typer.Exit(broker.wait() or 1 if text is None else 1)
            block += text
        found = _PROCESS.search(block)
        self._pid = int(found[1]) if found else broker.pid
        before, self._addresses = self._addresses, dict(_DOOR.findall(block))
        if self._addresses != before:
            typer.echo(block.partition("  Process ")[0], nl=False)

    def _plan_pipeline(self) -> None:
        """Load or create the pipeline's project, or set the reason why there is no pipeline."""
        section = self._settings.pipeline
        directory = section.directory or os.path.join(self._data_dir, "pipeline")
        try:
            if not os.path.exists(os.path.join(directory, FILE)):
                memory = f"{section.memory_bytes >> 20}m"
                write_project(directory, PIPELINE, "continuous", self._addresses.get("flight", ""), memory)
            self._project = load(directory, dict(os.environ) | self._environment())
        except ProjectError as error:
            fail(error)
        if self._settings.security.mode == "on":
            self._why_not = (
                "security is on. Give the pipeline a user in its pipeline.toml, then: "
                f"penstock pipeline run {_short(directory)}"
            )
        elif "flight" not in self._addresses:
            self._why_not = "it needs the door `flight`, which is off"
        else:
            try:
                find_java(os.environ)
            except JavaMissing as error:
                self._why_not = str(error)

    def _environment(self) -> dict[str, str]:
        return {ENV_BROKER: self._addresses["flight"]} if "flight" in self._addresses else {}

    def _start_generator(self) -> None:
        if self._no_generator():
            return
        opened = [name for name in GENERATOR_DOORS + MORE_DOORS if name in self._addresses]
        places = [part for name in opened for part in (f"--{name}", self._addresses[name])]
        rate = str(self._settings.pipeline.events_per_second)
        command = [sys.executable, "-m", "penstock.cli.generator", *places, "--rate", rate]
        self._generator = generator = _start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._began["generator"] = time.monotonic()
        assert generator.stdout is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and not self._signals:  # the pipeline and the commands need its topics
            text = _some(generator.stdout, TURN_SECONDS)
            if text is None or "are there" in text:
                break

    def _no_generator(self) -> str:
        """The reason why there is no generator; empty if there is one."""
        if not self._settings.pipeline.events_per_second:
            return "events_per_second in [pipeline] is 0"
        if self._settings.security.mode == "on":
            return "security is on, and it has no user"
        closed = [name for name in GENERATOR_DOORS if name not in self._addresses]
        return f"it needs the door `{closed[0]}`, which is off" if closed else ""

    def _start_pipeline(self) -> None:
        if self._project is None or self._why_not:
            return
        self._driver = Driver(self._project, None, Refresh(), dict(os.environ) | self._environment())
        self._began["pipeline"] = time.monotonic()

    # -- running

    def _watch(self) -> int:
        while not self._signals:
            assert self._broker is not None
            if self._broker.poll() is not None:
                self._restart_broker()
                continue
            self._pass_on(self._broker)
            if self._generator is not None:
                self._pass_on(self._generator, "generator: ")
                self._look_after("generator", self._generator.poll(), self._start_generator)
            self._hear_pipeline()
        typer.echo("stopping the generator, the pipeline and the broker")
        return 0

    def _restart_broker(self) -> None:
        """Restart the broker. The generator and the pipeline wait for it, like any client. If its ports have changed,
        they are restarted too."""
        broker = self._broker
        assert broker is not None and broker.stdout is not None
        seconds = self._backoff["broker"].delay(time.monotonic() - self._began["broker"])
        typer.echo(f"the broker {_ending(broker.returncode)}; restarting in {seconds:g} s", err=True)
        typer.echo(broker.stdout.read().decode(errors="replace"), nl=False)
        broker.stdout.close()
        time.sleep(seconds)
        if self._signals:
            return
        before = self._addresses
        self._start_broker()
        typer.echo(f"the broker is back, as process {self._pid}")
        if self._generator is not None and self._generator.stdout is not None:
            _some(self._generator.stdout, 0)  # drops its message that the broker was away
        if self._addresses != before:
            self._stop_clients()
            self._start_generator()
            self._start_pipeline()

    def _look_after(self, name: str, code: int | None, start: Callable[[], None]) -> None:
        """Restart a part that has ended, with backoff."""
        now = time.monotonic()
        if code is None:
            return
        if name not in self._restart_at:
            seconds = self._backoff[name].delay(now - self._began[name])
            self._restart_at[name] = now + seconds
            typer.echo(f"the {name} ended with code {code}; restarting in {seconds:g} s", err=True)
        elif now >= self._restart_at[name]:
            del self._restart_at[name]
            start()

    def _hear_pipeline(self) -> None:
        if self._driver is None:
            time.sleep(TURN_SECONDS)
            return
        if "pipeline" in self._restart_at:
            time.sleep(TURN_SECONDS)
            self._look_after("pipeline", 1, self._start_pipeline)
            return
        events = self._driver.events(TURN_SECONDS)
        for event in events or ():
            if event.kind == "failed":
                typer.echo(f"the pipeline failed: {first_line(event.text)} (log: {self._driver.log})", err=True)
            elif event.kind == "flow" and event.text.startswith("quarantined"):
                typer.echo(f"the pipeline stopped {event.flow}: {event.text.splitlines()[-1]}", err=True)
        if not self._tables_shown:
            self._show_tables()
        if events is None:
            self._look_after("pipeline", self._driver.close(), self._start_pipeline)

    def _show_tables(self) -> None:
        """Print the tables once, when all of them exist."""
        assert self._project is not None and self._driver is not None
        if all(_is_table(self._project.table(name)) for name in TABLES):
            typer.echo(self._tables_block(self._project))
            self._tables_shown = True
        elif not self._tables_late and time.monotonic() - self._began["pipeline"] > SPARK_SECONDS:
            seconds = f"{SPARK_SECONDS:g} s"
            typer.echo(f"no tables after {seconds}; still waiting for Spark (log: {self._driver.log})", err=True)
            self._tables_late = True

    def _pass_on(self, process: subprocess.Popen[bytes], prefix: str = "") -> None:
        assert process.stdout is not None
        for line in (_some(process.stdout, 0) or "").splitlines():
            if line:
                typer.echo(prefix + line)

    def _block(self) -> str:
        """The start block, below the broker's own: the other parts, and commands that work now."""
        why_not = self._no_generator()
        rate = f"{self._settings.pipeline.events_per_second:g} events a second"
        lines = [
            f"  generator   not started: {why_not}"
            if why_not
            else f"  generator   {rate}: orders through RustLog, page_views through FlyMQ, BlipMQ and Felix, payments "
            "through Kimberlite"
        ]
        if self._why_not:
            first, *others = self._why_not.splitlines()
            lines += [f"  pipeline    not started: {first}", *(f"            {line}" for line in others)]
        else:
            lines.append("  pipeline    starting Spark; its tables will be listed below in a minute or two")
        lines += [
            f"  broker      process {self._pid}; after kill -9 it is restarted, and no acknowledged record is lost",
            *([f"  console     http://{self._addresses['http']}/"] if "http" in self._addresses else []),
            "",
            "  Try, in another terminal:",
            *(f"    {command}" for command in self._commands()),
            "",
            f"  Process {os.getpid()} supervises all of this. Ctrl-C or SIGTERM stops it, a second signal at once.",
        ]
        return "\n".join(lines)

    def _tables_block(self, project: Project) -> str:
        """The pipeline, its outputs, and commands to inspect them."""
        paths = [_short(project.table(name)) for name in TABLES]
        directory, table = _short(project.directory), _short(project.table("gold_revenue"))
        revenue, dead_letters = project.topics["revenue"], project.topics["dead_letters"]
        look = f"from deltalake import DeltaTable; print(DeltaTable('{table}').to_pandas().tail())"
        return "\n".join(
            (
                "",
                f"  pipeline    running; its code is {directory}/{project.file.entry}",
                *(f"  {'tables' if not at else '':<12}{path}" for at, path in enumerate(paths)),
                f"  topics      {revenue}, … (once a minute), {dead_letters} (rejected records)",
                f"  report      {_short(report_file(project))} (every minute)",
                "",
                "  Try:",
                f"    {_penstock()} pipeline status {directory}",
                f'    {_short(sys.executable)} -c "{look}"',
                "",
            )
        )

    def _commands(self) -> list[str]:
        command, here = _penstock(), f"--data-dir {_short(self._data_dir)}"
        server = self._addresses.get("rustlog", "")
        at = "" if server in ("", "127.0.0.1:9092") else f" --server {server}"
        if self._settings.security.mode == "on":
            return [
                f"{command} users add alice --role admin {here}",
                f"{command} users add {PIPELINE} --role producer --role consumer {here}",
                f"{command} users list {here}",
            ]
        if self._no_generator():
            return [f"{command} topic create orders{at}", f"{command} produce orders{at} hello"]
        statement = "SELECT product, COUNT(*) AS orders FROM orders GROUP BY product"
        return [
            f"{command} consume orders --last 5{at}",
            f'{command} sql "{statement}"{at}',
            f"{command} status{at}",
        ]

    # -- stopping

    def _stop(self) -> None:
        """Stop the parts in order of their dependencies, each with its timeout."""
        self._stop_clients()
        _end(self._broker)
        if self._broker is not None and self._broker.stdout is not None:
            with contextlib.suppress(BrokenPipeError, ValueError):  # closed if it ended before
                typer.echo(self._broker.stdout.read().decode(errors="replace"), nl=False)
            self._broker.stdout.close()
        self._broker = None

    def _stop_clients(self) -> None:
        """Stop the generator and the pipeline."""
        _end(self._generator)
        if self._driver is not None and "pipeline" not in self._restart_at:
            self._driver.stop()
            _wait(self._driver.process)
            self._driver.close()
        for stream in (self._generator.stdin, self._generator.stdout) if self._generator is not None else ():
            if stream is not None:
                stream.close()
        self._generator = self._driver = None
        self._restart_at.clear()

    def _kill(self) -> None:
        for process in (self._generator, self._broker):
            if process is not None and process.poll() is None:
                process.kill()
        if self._driver is not None:
            self._driver.kill()


def _start(command: Sequence[str], *, stdin: int = subprocess.DEVNULL, stdout: int) -> subprocess.Popen[bytes]:
    """Start a process in its own session, so that Ctrl-C reaches only this one; it ends with this process."""
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, start_new_session=True, preexec_fn=_end_with_parent)


def _end_with_parent() -> None:
    """Linux only; elsewhere a broker continues to run if `up` was killed."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None and process.poll() is None:
        process.terminate()
        _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _some(stream: IO[bytes], seconds: float) -> str | None:
    """Available bytes, waiting up to this time for some; None at the end of the stream."""
    if not select.select([stream], [], [], seconds)[0]:
        return ""
    data = os.read(stream.fileno(), 1 << 16)
    return data.decode(errors="replace") if data else None


def _short(path: str) -> str:
    """The path relative to the current directory, if below it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _penstock() -> str:
    """The command as typed from the current directory."""
    return _short(sys.argv[0]) if os.path.basename(sys.argv[0]) == "penstock" else "penstock"


def _is_table(path: str) -> bool:
    """Whether a table has its first version. Remote ones are not checked."""
    return "://" in path or os.path.exists(os.path.join(path, "_delta_log", f"{0:020}.json"))


def _ending(code: int) -> str:
    return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with code {code}"
