"""`penstock up`: all of it at once, to look at: the broker, a generator of events, and a pipeline on them.

Three processes beside this one, which starts them in order, starts again what crashes, and stops them in the opposite
order. Without Java the pipeline is left out, and everything else works.
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
from penstock.config.settings import Settings
from penstock.retry import RestartBackoff
from penstock.spark.pipelines.declarative import Refresh
from penstock.spark.pipelines.driver import Driver
from penstock.spark.pipelines.java import JavaMissing, find_java
from penstock.spark.pipelines.project import ENV_BROKER, FILE, Project, ProjectError, load
from penstock.spark.pipelines.scaffold import write_project

PIPELINE = "shop"
GENERATOR_DOORS = ("rustlog", "flymq", "blipmq")
TABLES = ("orders", "page_views", "revenue_by_minute")
START_SECONDS = 60.0  # that the broker gets to come up after its first line
SPARK_SECONDS = 180.0  # that the block with the commands waits for Spark
STOP_SECONDS = 70.0
BACKOFF = (1.0, 60.0)  # seconds until a crashed part is started again: the first time, and at most
STEADY_SECONDS = 60.0  # a part that ran for so long begins at the first again
TURN_SECONDS = 0.25
PR_SET_PDEATHSIG = 1
ROLL_SECONDS, ROLL = "PENSTOCK_LOG__ROLL_SECONDS", "60"

_DOOR = re.compile(r"^  (\w+) +(\S+:\d+)(?: \(QUIC\).*)?$", re.MULTILINE)


@flags.with_serve_flags
def up(serve: flags.ServeFlags) -> None:
    """Run the broker with a generator of orders and page views and a pipeline that makes tables and a topic of them.

    The flags are those of `penstock serve`. Ctrl-C or SIGTERM stops all of it in good order; a second one does not
    wait.
    """
    effective = flags.effective(serve)
    settings = effective.settings
    if effective.origin("log.roll_seconds") == "default":
        os.environ[ROLL_SECONDS] = ROLL  # there is to be something in the tables while somebody looks
    raise typer.Exit(Stack(settings, serve.arguments()).run())


class Stack:
    """Broker, generator and pipeline, from the first to the last moment."""

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
        self._block_shown = False
        self._why_not = ""  # there is no pipeline
        self._again: dict[str, float] = {}  # part → when to start it again
        self._began: dict[str, float] = {}
        self._backoff = {name: RestartBackoff(*BACKOFF, STEADY_SECONDS) for name in ("generator", "pipeline")}

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        try:
            self._start_broker()
            if not self._signals:
                self._plan_pipeline()
                self._start_generator()
                self._start_pipeline()
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
        """Raises typer.Exit if it does not come up; why has been said by then."""
        command = [sys.executable, "-m", "penstock.cli.main", "serve", *self._arguments]
        self._broker = broker = _start(command, stdout=subprocess.PIPE)
        assert broker.stdout is not None
        block = ""
        deadline = time.monotonic() + START_SECONDS
        while "is ready" not in block:
            text = _some(broker.stdout, TURN_SECONDS)
            if text is None or (not text and time.monotonic() > deadline):
                if "MAKELEVEL" in os.environ:  # whoever typed `make up` has to know how a flag gets here
                    typer.echo(
                        'Flags for the broker go through make like this: make up UP="--listen http=off"', err=True
                    )
                raise typer.Exit(broker.wait() or 1 if text is None else 1)
            block += text
        shown, _, _ = block.partition("  Process ")
        typer.echo(shown, nl=False)
        self._addresses = dict(_DOOR.findall(block))

    def _plan_pipeline(self) -> None:
        """The pipeline's requirements, or the reason why there is none."""
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
        places = [part for name in GENERATOR_DOORS for part in (f"--{name}", self._addresses[name])]
        rate = str(self._settings.pipeline.events_per_second)
        command = [sys.executable, "-m", "penstock.cli.generator", *places, "--rate", rate]
        self._generator = generator = _start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._began["generator"] = time.monotonic()
        assert generator.stdout is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and not self._signals:  # the pipeline wants the topics to be there
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
            self._show_block()
            return
        if not self._block_shown:
            typer.echo("  starting Spark, which takes a while …")
        self._driver = Driver(self._project, None, Refresh(), dict(os.environ) | self._environment())
        self._began["pipeline"] = time.monotonic()

    # -- running

    def _watch(self) -> int:
        while not self._signals:
            assert self._broker is not None
            if self._broker.poll() is not None:
                self._restart_all()
                continue
            self._pass_on(self._broker)
            if self._generator is not None:
                self._pass_on(self._generator, "generator: ")
                self._look_after("generator", self._generator.poll(), self._start_generator)
            self._hear_pipeline()
        typer.echo("stopping: the generator, the pipeline, the broker")
        return 0

    def _restart_all(self) -> None:
        """The broker is gone. What needs it begins again after it, because its ports may be others now."""
        assert self._broker is not None
        typer.echo(f"the broker ended with code {self._broker.returncode}; it is started again", err=True)
        self._stop()
        time.sleep(BACKOFF[0])
        if not self._signals:
            self._start_broker()
            self._start_generator()
            self._start_pipeline()

    def _look_after(self, name: str, code: int | None, start: Callable[[], None]) -> None:
        """Start a part that has ended again, but not at once, and ever later."""
        now = time.monotonic()
        if code is None:
            return
        if name not in self._again:
            seconds = self._backoff[name].delay(now - self._began[name])
            self._again[name] = now + seconds
            typer.echo(f"the {name} ended with code {code}; it is started again in {seconds:g} s", err=True)
        elif now >= self._again[name]:
            del self._again[name]
            start()

    def _hear_pipeline(self) -> None:
        if self._driver is None:
            time.sleep(TURN_SECONDS)
            return
        if "pipeline" in self._again:
            time.sleep(TURN_SECONDS)
            self._look_after("pipeline", 1, self._start_pipeline)
            return
        events = self._driver.events(TURN_SECONDS)
        for event in events or ():
            if event.kind == "flow" and event.text == "running":
                self._show_block()
            elif event.kind == "failed":
                typer.echo(f"the pipeline failed: {event.text.splitlines()[0]} (log: {self._driver.log})", err=True)
        if time.monotonic() - self._began["pipeline"] > SPARK_SECONDS:
            self._show_block()
        if events is None:
            self._look_after("pipeline", self._driver.close(), self._start_pipeline)

    def _pass_on(self, process: subprocess.Popen[bytes], prefix: str = "") -> None:
        assert process.stdout is not None
        for line in (_some(process.stdout, 0) or "").splitlines():
            if line:
                typer.echo(prefix + line)

    def _show_block(self) -> None:
        if not self._block_shown:
            self._block_shown = True
            typer.echo(self._block())

    def _block(self) -> str:
        """The start block: every part, its address, and what to do with it."""
        lines = ["", *(f"  {name:<12}{address}" for name, address in self._addresses.items()), ""]
        rate = f"{self._settings.pipeline.events_per_second:g} events a second"
        why_not = self._no_generator()
        lines.append(
            f"  generator   not started: {why_not}"
            if why_not
            else f"  generator   {rate}: orders through RustLog, page_views through FlyMQ and BlipMQ"
        )
        if self._why_not or self._project is None:
            lines += [f"  pipeline    not started: {line}" if not at else f"            {line}" for at, line in
                      enumerate(self._why_not.splitlines())]  # fmt: skip
        else:
            lines.append(
                f"  pipeline    running; its code is {_short(self._project.directory)}/{self._project.file.entry}"
            )
            paths = [_short(self._project.table(name)) for name in TABLES]
            lines += [f"  {'tables' if not at else '':<12}{path}" for at, path in enumerate(paths)]
            topics = self._project.topics
            lines.append(f"  topics      {topics['revenue']} (results), {topics['dead_letters']} (what did not fit)")
        lines += ["", "  Try:", *(f"    {command}" for command in self._commands()), ""]
        lines.append(
            f"  Process {os.getpid()} runs all of it. Stop it with Ctrl-C or SIGTERM; a second one does not wait."
        )
        return "\n".join(lines)

    def _commands(self) -> list[str]:
        command = _short(sys.argv[0]) if os.path.basename(sys.argv[0]) == "penstock" else "penstock"
        server = self._addresses.get("rustlog", "")
        at = "" if server in ("", "127.0.0.1:9092") else f" --server {server}"
        if self._settings.security.mode == "on":
            here = f"--data-dir {_short(self._data_dir)}"
            return [
                f"{command} users add alice --role admin {here}",
                f"{command} users add {PIPELINE} --role producer --role consumer {here}",
                f"{command} users list {here}",
            ]
        if self._project is None or self._why_not:
            return [
                f"{command} consume orders{at} --follow",
                f"{command} produce orders{at} 'hello'",
                f"{command} topic list{at}",
            ]
        table = _short(self._project.table("revenue_by_minute"))
        look = f"from deltalake import DeltaTable; print(DeltaTable('{table}').to_pandas().tail())"
        return [
            f"{command} consume {self._project.topics['revenue']}{at} --follow",
            f"{command} pipeline status {_short(self._project.directory)}",
            f'{_short(sys.executable)} -c "{look}"',
        ]

    # -- stopping

    def _stop(self) -> None:
        """In the order in which they need each other, each with the time that it has a right to."""
        _end(self._generator)
        if self._driver is not None and "pipeline" not in self._again:
            self._driver.stop()
            _wait(self._driver.process)
            self._driver.close()
        _end(self._broker)
        if self._broker is not None and self._broker.stdout is not None:
            with contextlib.suppress(BrokenPipeError):
                typer.echo(self._broker.stdout.read().decode(errors="replace"), nl=False)
        for process in (self._generator, self._broker):
            for stream in (process.stdin, process.stdout) if process is not None else ():
                if stream is not None:
                    stream.close()
        self._generator = self._driver = self._broker = None
        self._again.clear()

    def _kill(self) -> None:
        for process in (self._generator, self._broker):
            if process is not None and process.poll() is None:
                process.kill()
        if self._driver is not None:
            self._driver.kill()


def _start(command: Sequence[str], *, stdin: int = subprocess.DEVNULL, stdout: int) -> subprocess.Popen[bytes]:
    """With a session of its own, so that Ctrl-C reaches this process only; and it does not outlive this process."""
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, start_new_session=True, preexec_fn=_end_with_parent)


def _end_with_parent() -> None:
    """Linux only; elsewhere a broker whose `up` was killed goes on until it is stopped."""
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
    """Bytes that are there to read, waiting so long for some; None at the end."""
    if not select.select([stream], [], [], seconds)[0]:
        return ""
    data = os.read(stream.fileno(), 1 << 16)
    return data.decode(errors="replace") if data else None


def _short(path: str) -> str:
    """As somebody in this directory would write it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
