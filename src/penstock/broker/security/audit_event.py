"""Audit events: their format and retention, queries, and exports.

Pure. `audit` stores them and checks access.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from penstock.broker.errors import InvalidArgument, LimitReached
from penstock.broker.security.lockout import address_of
from penstock.broker.security.user import PRINCIPAL

Result: TypeAlias = Literal["success", "denied", "failure"]

TYPES: Final = (
    "auth.success",
    "auth.failure",
    "auth.lockout",
    "access.denied",
    "topic.create",
    "topic.alter",
    "topic.delete",
    "table.repair",
    "user.create",
    "user.update",
    "user.delete",
    "password.change",
    "role.set",
    "role.delete",
    "acl.set",
    "acl.delete",
    "key.add",
    "key.revoke",
    "key.rotate",
    "schema.register",
    "schema.alter",
    "schema.delete",
    "group.reset",
    "group.delete",
    "dlq.replay",
    "dlq.purge",
    "query.insert",
    "query.break_glass",
    "stream.append",
    "stream.read",
    "tenant.create",
    "tenant.delete",
    "queue.delete",
    "delayed.cancel",
    "connection.close",
    "pipeline.restart",
    "record.produce",
    "cache.put",
    "cache.delete",
    "backup.create",
    "backup.delete",
    "transaction.abort",
    "job.start",
    "job.cancel",
    "cluster.join",
    "cluster.leave",
)

OFTEN: Final = frozenset(
    {"auth.success", "query.insert", "stream.append", "stream.read", "record.produce", "cache.put", "cache.delete"}
)
"""Events that clients can cause at any rate, so they are throttled. Uses of break-glass are not among them: each is
recorded."""

DAY: Final = 86_400  # s
MAX_TEXT: Final = 255  # characters of each field of an event: clients choose some of them
MAX_DETAILS: Final = 16
DEFAULT_PAGE: Final = 100  # events
MAX_PAGE: Final = 1_000
MAX_TYPES: Final = 100
MAX_EXPORT_BYTES: Final = 16 << 20

_COLUMNS: Final = (
    "id", "timestamp", "type", "user", "client_ip", "resource", "action", "result", "node_id", "details",
)  # fmt: skip
# Spreadsheets treat a cell that begins with one of these as a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class AuditPolicy:
    enabled: bool = False
    seconds: float = 90 * DAY  # how long events are kept
    bytes: int = 64 << 20  # approximate bytes kept per tenant
    node: str = "penstock"  # name of this broker


class AuditEvent(msgspec.Struct, omit_defaults=True):
    """An audit event. The field names are those of the stored JSON document; `id` is not stored, but derived from the
    offset.
    """

    timestamp: int  # ms since 1970
    type: str
    user: str
    client_ip: str
    resource: str
    action: str
    result: str
    node_id: str
    details: dict[str, str]
    id: str = ""


class AuditQuery(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A query for events; an empty field matches anything. A type may be a family: `auth` stands for all types that
    begin with `auth.`.
    """

    start: int = 0  # ms since 1970
    end: int | None = None  # ms since 1970; exclusive
    types: tuple[str, ...] = ()
    user: str = ""
    resource: str = ""
    result: str = ""
    search: str = ""  # contained in any of the texts, ignoring case
    limit: int | None = None  # None: `DEFAULT_PAGE` of a query, all of an export; a page has at most `MAX_PAGE`
    offset: int = 0  # how many of the newest to skip
    subject: str = ""  # the resource, or `subject` of the details
    actor: str = ""  # the user, with or without its kind prefix, or `actor` of the details


def span(first: int | None, last: int | None) -> tuple[int, int | None]:
    """`start` and `end` of a query for the events from `first` to `last`, both inclusive, in ns since 1970."""
    return -(-max(0, first or 0) // 1_000_000), None if last is None else last // 1_000_000 + 1


def context(**fields: str | None) -> tuple[tuple[str, str], ...]:
    """For `Identity.context`: details of a request (actor, reason, correlation_id), to be included in all of its
    events. Empty ones are left out; texts are truncated like all others.
    """
    return tuple((name, text[: MAX_TEXT + 1]) for name, text in fields.items() if text)


class AuditPage(NamedTuple):
    events: list[AuditEvent]  # newest first
    total: int  # number of matches on all pages
    has_more: bool


def event(
    now: int, kind: str, user: str, peer: str, resource: str, action: str, result: Result, node: str,
    details: Mapping[str, str],
) -> AuditEvent:  # fmt: skip
    plain_details = {_plain(name): _plain(value) for name, value in list(details.items())[:MAX_DETAILS]}
    where = address_of(peer)
    return AuditEvent(
        now // 1000, kind, _plain(user), _plain(where), _plain(resource), _plain(action), result, node, plain_details
    )


def _plain(text: str) -> str:
    """The text, truncated and safe to encode."""
    text = text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AuditEvent)


def encode(event: AuditEvent) -> bytes:
    return _encoder.encode(event)


def decode(data: bytes) -> AuditEvent | None:
    """The event; None for a record that is not an audit event."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError:
        return None


# -- queries


def check(query: AuditQuery) -> None:
    for name in ("limit", "offset"):
        if (value := getattr(query, name) or 0) < 0:
            raise InvalidArgument(f"The {name} of an audit query cannot be {value}")
    if len(query.types) > MAX_TYPES:
        raise InvalidArgument(f"An audit query names at most {MAX_TYPES} types")


def matcher(query: AuditQuery) -> Callable[[AuditEvent], bool]:
    """A function that tells whether an event matches the query."""
    tests: list[Callable[[AuditEvent], bool]] = []
    if query.start > 0:
        tests.append(lambda event: event.timestamp >= query.start)
    if (end := query.end) is not None:
        tests.append(lambda event: event.timestamp < end)
    if query.types:
        whole, families = frozenset(query.types), tuple(f"{kind}." for kind in query.types)
        tests.append(lambda event: event.type in whole or event.type.startswith(families))
    if query.user:
        names = (query.user, PRINCIPAL + query.user)
        tests.append(lambda event: event.user in names)
    if query.resource:
        tests.append(lambda event: event.resource == query.resource)
    if subject := query.subject:
        tests.append(lambda event: subject in (event.resource, event.details.get("subject")))
    if actor := query.actor:
        tests.append(lambda event: actor in (event.user, event.user.partition(":")[2], event.details.get("actor")))
    if query.result:
        tests.append(lambda event: event.result == query.result)
    if query.search:
        wanted = query.search.casefold()
        tests.append(lambda event: any(wanted in text.casefold() for text in _texts(event)))
    return lambda event: all(test(event) for test in tests)


def _texts(event: AuditEvent) -> Iterable[str]:
    yield from (event.type, event.user, event.client_ip, event.resource, event.action, event.result)
    for name, value in event.details.items():
        yield name
        yield value


# -- exports


def to_json(events: Iterable[AuditEvent]) -> bytes:
    """An array of all events. Raises LimitReached above `MAX_EXPORT_BYTES`."""
    size, parts = 0, []
    for event in events:
        parts.append(encode(event))
        size = _bounded(size + len(parts[-1]) + 2)
    return b"[" + b",\n".join(parts) + b"]\n"


def to_csv(events: Iterable[AuditEvent]) -> bytes:
    """A line per event, after a header line; details are JSON. Raises LimitReached above `MAX_EXPORT_BYTES`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(_COLUMNS)
    size = 0
    for event in events:
        cells = [str(getattr(event, name)) for name in _COLUMNS[:-1]]
        cells.append(_encoder.encode(event.details).decode())
        cells = [_harmless(cell) for cell in cells]
        writer.writerow(cells)
        size = _bounded(size + sum([len(cell.encode()) + 3 for cell in cells]))
    return text.getvalue().encode()


def _harmless(cell: str) -> str:
    return "'" + cell if cell.startswith(_FORMULA) else cell


def _bounded(size: int) -> int:
    if size > MAX_EXPORT_BYTES:
        raise LimitReached(f"The export would be larger than {MAX_EXPORT_BYTES >> 20} MiB: ask for a shorter time")
    return size


FORMATS: Final[dict[str, Callable[[Iterable[AuditEvent]], bytes]]] = {"json": to_json, "csv": to_csv}
