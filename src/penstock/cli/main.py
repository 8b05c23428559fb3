"""The `penstock` command: its subcommands, and their failures: one line on stderr and an exit code, no traceback."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, Final

import typer

from penstock import __version__
from penstock.cli.lazy_group import Entry, LazyGroup, Section

SECTIONS: Final[tuple[Section, ...]] = (
    (
        "Run a broker",
        {
            "serve": Entry("penstock.cli.serve", "Run the broker in the foreground.", "serve"),
            "up": Entry("penstock.cli.up", "Run broker, generator and pipeline, to try things out.", "up"),
            "context": Entry("penstock.cli.context", "Save brokers under names, and choose the one that commands use."),
            "config": Entry(
                "penstock.cli.config", "Print the configuration in effect and where it comes from.", "show"
            ),
        },
    ),
    (
        "Records",
        {
            "topic": Entry("penstock.cli.topic", "Create, list, describe, change and delete topics."),
            "produce": Entry("penstock.cli.produce", "Append records: values, lines, files.", "produce"),
            "consume": Entry("penstock.cli.consume", "Print records, and follow those to come.", "consume"),
            "group": Entry("penstock.cli.group", "Look at consumer groups and their lag, and move them."),
            "queue": Entry("penstock.cli.queue", "List work queues, take messages from them, and delete queues."),
            "dlq": Entry("penstock.cli.dlq", "List, replay and purge dead letters."),
            "delayed": Entry("penstock.cli.delayed", "List and cancel delayed records."),
            "txn": Entry("penstock.cli.txn", "Look at open transactions, and abort them."),
            "sql": Entry("penstock.cli.sql", "Carry out SQL on topics and streams.", "sql"),
            "cache": Entry("penstock.cli.cache", "Get, put, increment and delete cached values."),
            "table": Entry("penstock.cli.table", "List, show, verify and repair tables."),
            "schema": Entry("penstock.cli.schema", "Register, list and check schemas."),
            "pipeline": Entry("penstock.cli.pipeline", "Make, run and watch pipelines on Spark."),
        },
    ),
    (
        "Access",
        {
            "tenant": Entry("penstock.cli.tenant", "Register, list and delete tenants."),
            "users": Entry("penstock.cli.users", "Add, list, change and delete users."),
            "roles": Entry("penstock.cli.roles", "List roles and what they allow."),
            "acl": Entry("penstock.cli.acl", "Set who may use a topic."),
            "keys": Entry("penstock.cli.keys", "Add, list, rotate and revoke API keys."),
            "token": Entry("penstock.cli.token", "Make and read tokens."),
            "audit": Entry("penstock.cli.audit", "Read and verify the audit log."),
            "cert": Entry("penstock.cli.cert", "Show the certificate that the broker presents."),
        },
    ),
    (
        "Operate",
        {
            "top": Entry("penstock.cli.top", "Watch what goes through a broker.", "top"),
            "bench": Entry("penstock.cli.bench", "Measure how much a broker takes and gives.", "bench"),
            "mirror": Entry("penstock.cli.mirror", "Copy topics from one broker to another.", "mirror"),
            "backup": Entry("penstock.cli.backup", "Copy a broker while it runs, and check the copy."),
            "restore": Entry("penstock.cli.backup", "Bring a backup back into a new data directory.", "restore"),
            "storage": Entry("penstock.cli.storage", "Move the journal between files and Apache Kafka."),
            "status": Entry("penstock.cli.status", "Show a broker on one screen, and what is wrong.", "status"),
            "debug": Entry("penstock.cli.debug", "Collect what a report about a broker should have."),
            "doctor": Entry("penstock.cli.doctor", "Check this machine for a broker: what is wrong.", "doctor"),
        },
    ),
    (
        "Check",
        {
            "log": Entry("penstock.cli.log", "Verify and repair the journal."),
            "conformance": Entry("penstock.cli.conformance", "Check how a protocol is spoken.", "conformance"),
            "version": Entry("penstock.cli.version", "Print the version.", "version"),
        },
    ),
)
"""All commands, in the order of `penstock --help`."""


WHICH_BROKER: Final = (
    ("--server, --context", "a broker by its address, or by the name of a context"),
    ("--data-dir, --config", "the broker of a data directory of this machine: administration takes no login"),
    ("PENSTOCK_SERVER, PENSTOCK_CONTEXT", "the same as the flags"),
    ("PENSTOCK_DATA_DIR, PENSTOCK_CONFIG", "the same as the flags"),
    ("penstock context use NAME", "the context in use"),
    ("127.0.0.1:9092", "if nothing is given"),
)
"""The sources that select a command's broker, in order of precedence: `target` implements the rule."""

EXIT_CODES: Final = (
    ("0", "done"),
    ("1", "not done: the broker refused it, or is not there, or something is wrong with what was checked"),
    ("2", "wrong usage: nothing was tried"),
    ("130", "interrupted by Ctrl-C"),
)


class Commands(LazyGroup):
    sections = SECTIONS

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        for heading, lines in (("Which broker (the first that is given)", WHICH_BROKER), ("Exit codes", EXIT_CODES)):
            with formatter.section(heading):
                formatter.write_dl(lines)
        super().format_epilog(ctx, formatter)


app = typer.Typer(
    name="penstock",
    cls=Commands,
    help="One durable log behind five broker wire protocols.",
    epilog="`penstock COMMAND --help` tells more, with examples.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None: ...


def main() -> None:
    """The entry point: Ctrl-C and closed pipes end the command quietly, at any point."""
    try:
        app(prog_name="penstock")
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Python would report that again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        from penstock.config.settings import ConfigError

        if not isinstance(error, ConfigError):
            raise
        # About a file named by a key, which is read lazily.
        typer.echo(f"penstock: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
