"""The console: the web pages at `/`, and their resources below `/console/`.

These are files of this package, the same for everyone, without data of the broker. The pages get their data from the
administration API, with the identity of the logged-in user. The files are read at the first request.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from penstock.broker.runtime.executor import Deferred
from penstock.doors.http.errors import HttpError
from penstock.doors.http.replies import HttpReply, Outcome
from penstock.doors.http.request import AcceptedRequest, Admission, RequestHead

ROOT: Final = "/"
BELOW: Final = "/console/"
PAGE: Final = "index.html"
VERSION: Final = b"{version}"  # replaced in the page by a hash of all files

CONTENT_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
HEADERS: Final = (
    ("Content-Security-Policy", POLICY),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)
REVALIDATE: Final = "no-cache"
FOR_EVER: Final = "public, max-age=31536000, immutable"


class ConsoleFile(NamedTuple):
    body: bytes
    content_type: str
    etag: str


class Console:
    """The files, read once. The page refers to all others by paths with the hash of all files (`/console/HASH/app.js`),
    so that browsers can cache them, and never mix two versions."""

    def __init__(self) -> None:
        self._files: dict[str, ConsoleFile] = {}
        self._version = ""

    def serves(self, path: str) -> bool:
        return path == ROOT or path.startswith(BELOW)

    def open(self, head: RequestHead) -> Admission:
        if head.method not in ("GET", "HEAD"):
            raise HttpError(405, "method_not_allowed", "only GET and HEAD", (("Allow", "GET, HEAD"),))
        return AcceptedRequest(0, lambda _: self._reply(head))

    def _reply(self, head: RequestHead) -> Outcome:
        if not self._files:
            return Deferred(read_files, lambda found: self._loaded(found, head))
        version, _, name = head.path.removeprefix(BELOW).partition("/")
        known = version == self._version
        file = self._files.get(PAGE if head.path == ROOT else name if known else "")
        if file is None:
            raise HttpError(404, "not_found", "there is no such part of the console: load the page at / again")
        caching = ("ETag", file.etag), ("Cache-Control", FOR_EVER if known else REVALIDATE)
        if file.etag in (each.strip() for each in head.headers.get("if-none-match", "").split(",")):
            return HttpReply(304, b"", file.content_type, (*caching, *HEADERS))
        return HttpReply(200, file.body, file.content_type, (*caching, *HEADERS))

    def _loaded(self, found: dict[str, bytes], head: RequestHead) -> Outcome:
        everything = b"".join(name.encode() + body for name, body in sorted(found.items()))
        self._version = hashlib.sha256(everything).hexdigest()[:16]
        found[PAGE] = found[PAGE].replace(VERSION, self._version.encode())
        self._files = {name: _file(name, body) for name, body in found.items()}
        return self._reply(head)


def read_files() -> dict[str, bytes]:
    """All files, by their path below this package."""
    return dict(_below(files(__package__ or __name__), ""))


def _below(directory: Traversable, path: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for each in directory.iterdir():
        if each.is_dir():
            found += _below(each, f"{path}{each.name}/")
        elif re.search(r"\.\w+$", each.name) and each.name[each.name.rindex(".") :] in CONTENT_TYPES:
            found.append((path + each.name, each.read_bytes()))
    return found


def _file(name: str, body: bytes) -> ConsoleFile:
    digest = hashlib.sha256(body).hexdigest()[:32]
    return ConsoleFile(body, CONTENT_TYPES[name[name.rindex(".") :]], f'"{digest}"')
