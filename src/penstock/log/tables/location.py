"""The location of a topic's table. Pure and lightweight: the broker uses it without importing the table libraries.

    <root>/<tenant>/<namespace>/<quoted topic>-<topic id>

The id makes the location unique, since ids are never reused; the name is for people.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

MAX_SEGMENT_BYTES: Final = 200
TYPED_SUFFIX: Final = "_typed"  # of the name of a typed table, after that of its topic
TYPED: Final = ".typed"  # a topic's table ends with its number instead

_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class TableWriter(NamedTuple):
    """The owner of a journal that several brokers may write to, in one of its terms: it may change tables until an
    owner with a later term does."""

    journal: str
    term: int


class TableRef(NamedTuple):
    """Everything needed to open a table, in any process."""

    topic: int  # the topic's id
    name: str
    url: str
    options: dict[str, str]  # for the object store, as in `deltalake`
    writer: TableWriter | None = None  # for changes; None: there is only one possible writer


def table_ref(
    root: str,
    options: Mapping[str, str],
    tenant: str,
    namespace: str,
    name: str,
    topic_id: int,
    writer: TableWriter | None = None,
) -> TableRef:
    """The table of a topic below `root`: a folder, or any URL that `deltalake` supports. Names must be valid."""
    base = root.rstrip("/") if _SCHEME.match(root) else os.path.abspath(os.path.expanduser(root))
    url = "/".join((base, tenant, namespace, f"{quoted(name, MAX_SEGMENT_BYTES - 21)}-{topic_id}"))
    return TableRef(topic_id, name, url, dict(options), writer)


def typed_ref(ref: TableRef) -> TableRef:
    """The typed table of a topic with a schema: next to the topic's table, which manages everything inside its own
    folder."""
    return ref._replace(url=f"{ref.url}{TYPED}")


def quoted(name: str, max_bytes: int) -> str:
    """A topic's name as one segment of a path: bytes other than letters, digits, `-`, `_` and `.` become `@` and two
    hexadecimal digits. A name that is too long is cut, and ends in a hash.

    Some stores would quote `%` again, and `=` looks like a partition to Spark. A leading `_` or `.` hides files from
    Spark.
    """
    data = name.encode()
    plain = "".join(
        chr(byte) if byte in _PLAIN and not (at == 0 and byte in b"_.") else f"@{byte:02x}"
        for at, byte in enumerate(data)
    )
    if len(plain) <= max_bytes:
        return plain
    digest = sha256(data).hexdigest()[:20]
    return f"{plain[: max_bytes - 22]}@@{digest}"


def local_folder(url: str) -> str | None:
    """The local folder of a URL, or None if it is remote."""
    if not _SCHEME.match(url):
        return os.path.abspath(url)
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else None
