"""A pipeline's project folder: the contents of `pipeline.toml`, and the locations of all files of a run.

There are two kinds of projects. A declarative one holds datasets for Spark Declarative Pipelines (`transformations/`),
and a run processes new records and ends. A continuous one holds a Python file whose function starts streaming queries,
which run until they are stopped. All files of a run are below one directory, `place`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec

from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.retry import RetryPolicy, no_jitter

FILE = "pipeline.toml"
SPECS = ("spark-pipeline.yml", "spark-pipeline.yaml")
ENV_DIRECTORY = "PENSTOCK_PROJECT"  # the project directory, for code in the process that runs it
ENV_BROKER = "PENSTOCK_PROJECT_BROKER"  # a broker's address that overrides the file's

Kind = Literal["declarative", "continuous"]

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class ProjectError(Exception):
    """The project cannot be used. The text names the file and a remedy."""


class SparkSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[spark]`: the Spark environment."""

    master: str = "local[2]"
    python: str = ""  # of the workers; empty: the current one
    format: Literal["parquet", "delta"] = "parquet"  # of a declarative pipeline's tables; delta: by Delta's connector
    conf: dict[str, str | int | float | bool] = {}


class RestartSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[restart]`: handling of failed queries of a continuous pipeline."""

    attempts: Annotated[int, msgspec.Meta(ge=1)] = 5  # consecutive failures without a batch before quarantine
    first_seconds: Annotated[float, msgspec.Meta(ge=0)] = 1.0  # before the first restart; doubled each time,
    longest_seconds: Annotated[float, msgspec.Meta(ge=0)] = 60.0  # up to this

    def policy(self) -> RetryPolicy:
        return RetryPolicy(self.attempts, self.first_seconds, self.longest_seconds, no_jitter)


class ProjectFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The contents of `pipeline.toml`."""

    name: str
    kind: Kind
    broker: dict[str, str]
    place: str = "state"
    entry: str = "pipeline.py"  # of a continuous pipeline: the file with `start(spark, pipeline)`
    topics: dict[str, str] = {}
    settings: dict[str, Any] = {}
    spark: SparkSection = SparkSection()
    restart: RestartSection = RestartSection()


class Project:
    """A project with absolute paths. Code in the project gets it as `pipeline`."""

    def __init__(self, directory: str, file: ProjectFile, broker: Mapping[str, str]) -> None:
        self.directory = directory
        self.file = file
        self.broker = dict(broker)
        """Connection options of `format("penstock")`: address and credentials."""

    @property
    def scope(self) -> Scope:
        """The tenant and namespace of its topics."""
        given = {key.lower(): value for key, value in self.file.broker.items()}
        return Scope(*(given.get(part) or default for part, default in DEFAULT_SCOPE._asdict().items()))

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def topics(self) -> dict[str, str]:
        """The names of topics, by their aliases in the project."""
        return self.file.topics

    @property
    def settings(self) -> dict[str, Any]:
        """`[settings]`: arbitrary values for the project's own code."""
        return self.file.settings

    @property
    def place(self) -> str:
        """The directory of all files of runs: a path or a URL."""
        place = self.file.place
        return place if is_url(place) else os.path.normpath(os.path.join(self.directory, place))

    @property
    def local(self) -> str:
        """The part of it that must be local: lock, log, and Spark's catalog."""
        return os.path.join(self.directory, "state") if is_url(self.place) else self.place

    @property
    def warehouse(self) -> str:
        return self._url("warehouse")

    @property
    def checkpoints(self) -> str:
        return self._url("checkpoints")

    def checkpoint(self, query: str) -> str:
        """The checkpoint location of a query with this name, for `option("checkpointLocation", …)`."""
        return f"{self.checkpoints}/{quote(query, safe='')}"

    def table(self, name: str) -> str:
        """The location of the Delta table with this name: a path, or a URL."""
        return f"{self.place}/tables/{quote(name, safe='')}"

    def _url(self, part: str) -> str:
        """A URL, because Spark resolves a bare path on the cluster's default file system."""
        return f"{self.place}/{part}" if is_url(self.place) else f"file://{quote(self.place)}/{part}"


def is_url(place: str) -> bool:
    return "://" in place


def load(directory: str, environment: Mapping[str, str], *, connects: bool = True) -> Project:
    """Raises ProjectError. `connects=False`, for those that only look at the files of runs: if the environment lacks a
    variable that `[broker]` names, such as a password, the project is loaded without `broker`."""
    directory = os.path.abspath(os.path.expanduser(directory))
    path = os.path.join(directory, FILE)
    try:
        with open(path, "rb") as stream:
            file = msgspec.toml.decode(stream.read(), type=ProjectFile)
    except FileNotFoundError:
        raise ProjectError(
            f"{directory} is no pipeline: it has no {FILE}. `penstock pipeline init NAME` makes a project folder"
        ) from None
    except OSError as error:
        raise ProjectError(f"{path}: {error.strerror}") from error
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProjectError(f"{path}: {error}") from None
    if not connects and any(match[1] not in environment for match in _variables(file)):
        return Project(directory, file, {})
    broker = {key: _filled(path, key, value, environment) for key, value in file.broker.items()}
    if environment.get(ENV_BROKER):
        broker.pop("path", None)
        broker["bootstrap.servers"] = environment[ENV_BROKER]
    if ("path" in broker) == ("bootstrap.servers" in broker):
        raise ProjectError(
            f'{path}: [broker] needs one of "bootstrap.servers" (the address of a broker\'s Flight door) and "path" '
            "(the data directory of a broker that does not run)"
        )
    if "path" in broker:
        broker["path"] = os.path.normpath(os.path.join(directory, os.path.expanduser(broker["path"])))
    return Project(directory, file, broker)


def current(environment: Mapping[str, str] | None = None) -> Project:
    """The project of the running code. With Spark's own `spark-pipelines` that is the working directory. Raises
    ProjectError."""
    environment = os.environ if environment is None else environment
    return load(environment.get(ENV_DIRECTORY) or os.getcwd(), environment)


def check_name(name: str) -> str:
    """Check that a name can be used for a folder, a table and in a topic's name. Raises ProjectError."""
    if not _NAME.fullmatch(name):
        raise ProjectError(
            f"{name!r} is no name for a pipeline: it begins with a letter and has letters, digits, - and _, at most 64"
        )
    return name


def _variables(file: ProjectFile) -> Iterator[re.Match[str]]:
    return chain.from_iterable(map(_VARIABLE.finditer, file.broker.values()))


def _filled(path: str, key: str, value: str, environment: Mapping[str, str]) -> str:
    """Substitute environment variables, `${NAME}`: passwords belong in the environment."""

    def fill(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise ProjectError(f"{path}: [broker] {key} wants the environment variable {match[1]}, which is not set")
        return environment[match[1]]

    return _VARIABLE.sub(fill, value)
