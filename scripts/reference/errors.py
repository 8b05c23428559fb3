"""The page of errors: every error of the broker, and the code by which each door tells it.

It is made from the doors' own tables (`doors/*/errors.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from scripts.reference.markdown import table

from penstock.broker import errors as broker
from penstock.doors.blipmq import errors as blipmq
from penstock.doors.felix import errors as felix
from penstock.doors.http import errors as http
from penstock.doors.kimberlite import errors as kimberlite
from penstock.doors.rustlog import errors as rustlog
from penstock.log import errors as log
from penstock.wire.kimberlite.errors import ErrorCode

HEAD: Final = """# Errors

Every error that the broker can return, and the code by which each door reports it. `make reference` makes this page
from the doors' own tables.

- **HTTP** is the status and the `code` in the body of the [administration API](../api.md).
- **RustLog** is the code in the JSON dialect and, behind the slash, in the binary one. Some requests have codes of
  their own; [its page](../protocols/rustlog.md) lists them.
- **BlipMQ** is the code of the NACK.
- **Kimberlite** is the code of the error response. Older versions of the protocol get the nearest code that they have.
- **Felix** is the code and the advice. Clients that did not ask for codes get the text alone.
- **FlyMQ** has no codes: its error frame carries the text ([its page](../protocols/flymq.md)).

Exit codes of the command line are on the page of [commands](commands.md).

**An unknown outcome** is the one error to handle with care. The disk failed during a write, so the write may be stored
or not. Look before you send it again, or use an [idempotent producer](../how-to/exactly-once.md), which can always send
again. Every other error of a write means that nothing was stored.
"""
COLUMNS: Final = ("Error", "Meaning", "HTTP", "RustLog", "BlipMQ", "Kimberlite", "Felix")
ONLY_AT_START: Final = (log.DirectoryLocked, log.JournalMissing)  # no client is there to be told


def _all(root: type[Exception]) -> Iterator[type[Exception]]:
    for kind in root.__subclasses__():
        yield kind
        yield from _all(kind)


def kinds() -> list[type[Exception]]:
    """Every error that a client can be told, without those that only doors raise."""
    own = (broker.__name__, log.__name__)
    found = [kind for root in (broker.BrokerError, log.LogError) for kind in _all(root)]
    return [kind for kind in dict.fromkeys(found) if kind.__module__ in own and kind not in ONLY_AT_START]


def _entry(table_of: dict[Any, Any], kind: type[Exception]) -> Any:
    return next(table_of[each] for each in kind.__mro__ if each in table_of)


def meaning(kind: type[Exception]) -> str:
    """Its docstring; an error without one of its own has none."""
    return " ".join((kind.__dict__.get("__doc__") or "").split())


def _row(kind: type[Exception]) -> tuple[str, ...]:
    rust = next(rustlog.TABLE[each, None] for each in kind.__mro__ if (each, None) in rustlog.TABLE)
    advice = _entry(felix.ADVICE, kind)
    code: ErrorCode = _entry(kimberlite.TABLE, kind).code
    return (
        f"`{kind.__name__}`",
        meaning(kind),
        f"{_entry(http.STATUS, kind)} `{http.code_of(kind)}`",
        f"{rust.json_code} / {rust.binary_code}",
        str(_entry(blipmq.TABLE, kind).code),
        f"{int(code)} {code.name}",
        f"{int(advice.code)} {advice.code.name.lower()}, {advice.retry.name.lower()}",
    )


def page() -> str:
    rows = [_row(kind) for kind in sorted(kinds(), key=lambda kind: kind.__name__)]
    return "\n".join([HEAD, *table(COLUMNS, rows), ""])
