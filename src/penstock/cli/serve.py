"""`penstock serve`: runs the broker in the foreground."""

from __future__ import annotations

import contextlib

from penstock.cli import flags
from penstock.cli.failure import fail
from penstock.structured_logging import configure_logging


@flags.with_serve_flags
def serve(serve: flags.ServeFlags) -> None:
    """Run the broker until Ctrl-C or SIGTERM.

    Every setting can be given in a TOML file (--config), as an environment variable (PENSTOCK_SECTION__KEY, such as
    PENSTOCK_LOG__DURABILITY=written) or, for the most common ones, as a flag; each is stronger than the one before.
    `penstock config` prints all settings with their values and where they came from.

    penstock serve --data-dir ./data

    penstock serve --config penstock.toml --listen http=off --log-level warning
    """
    from penstock.server.errors import StartFailed
    from penstock.server.process import run

    effective = flags.effective(serve)
    configure_logging(effective.settings.log_level, effective.settings.log_format)
    try:
        run(effective, _say)
    except StartFailed as error:
        fail(error)


def _say(text: str) -> None:
    """Print a line; a reader that is gone must not prevent a clean shutdown."""
    with contextlib.suppress(BrokenPipeError):
        print(text, flush=True)
