"""An object store for tests, in memory: as much of S3 as tables need, and of Google's XML API, which is similar."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

SERVICE_ACCOUNT = ("client_email", "private_key", "private_key_id")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    objects: ClassVar[dict[str, bytes]]
    uploads: ClassVar[dict[str, dict[int, bytes]]]
    delay: ClassVar[float]
    lock = threading.Lock()

    def _place(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        return unquote(parts.path).removeprefix("/bucket").lstrip("/"), query

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who asked may have enough
                self.wfile.write(body)

    def _xml(self, text: str) -> None:
        self._reply(200, f'<?xml version="1.0"?>{text}'.encode())

    def do_PUT(self) -> None:
        key, query = self._place()
        body = self._body()
        with self.lock:
            if "uploadId" in query:
                self.uploads[query["uploadId"]][int(query["partNumber"])] = body
            elif key in self.objects and self._only_new():
                self._reply(412)
                return
            else:
                self.objects[key] = body
        self._reply(200, ETag=f'"{len(body)}"')

    def _only_new(self) -> bool:
        """Whether the object must not exist: in the words of S3, or of Google."""
        return self.headers.get("If-None-Match") == "*" or self.headers.get("x-goog-if-generation-match") == "0"

    def do_POST(self) -> None:
        key, query = self._place()
        body = self._body()
        if "uploads" in query:
            number = str(len(self.uploads))
            self.uploads[number] = {}
            self._xml(f"<R><Bucket>bucket</Bucket><Key>{escape(key)}</Key><UploadId>{number}</UploadId></R>")
        elif "uploadId" in query:
            self.objects[key] = b"".join(part for _, part in sorted(self.uploads.pop(query["uploadId"]).items()))
            self._xml('<R><Location>x</Location><Bucket>bucket</Bucket><Key>x</Key><ETag>"1"</ETag></R>')
        else:  # many deletions at once
            names = re.findall("<Key>(.*?)</Key>", body.decode())
            for name in names:
                self.objects.pop(name, None)
            gone = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
            self._xml(f"<DeleteResult>{gone}</DeleteResult>")

    def do_GET(self) -> None:
        time.sleep(self.delay)
        key, query = self._place()
        if "list-type" in query:
            self._list(query.get("prefix", ""), query.get("start-after", ""), query.get("delimiter", ""))
            return
        found = self.objects.get(key)
        if found is None:
            self._reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        whole = {"ETag": f'"{len(found)}"', "Last_Modified": "Wed, 01 Jan 2025 00:00:00 GMT"}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._reply(200, found, **whole)
            return
        first = int(wanted[1]) if wanted[1] else len(found) - int(wanted[2])
        last = min(int(wanted[2]), len(found) - 1) if wanted[1] and wanted[2] else len(found) - 1
        self._reply(206, found[first : last + 1], Content_Range=f"bytes {first}-{last}/{len(found)}", **whole)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def do_DELETE(self) -> None:
        self.objects.pop(self._place()[0], None)
        self._reply(204)

    def _list(self, prefix: str, after: str, delimiter: str) -> None:
        keys = [key for key in sorted(self.objects) if key.startswith(prefix) and key > after]
        folders = {key[: key.index("/", len(prefix)) + 1] for key in keys if delimiter and "/" in key[len(prefix) :]}
        keys = [key for key in keys if not any(key.startswith(folder) for folder in folders)]
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2025-01-01T00:00:00.000Z</LastModified>"
            f'<ETag>"1"</ETag><Size>{len(self.objects[key])}</Size></Contents>'
            for key in keys
        )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders)
        )
        self._xml(f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}{common}</ListBucketResult>")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def object_store(delay: float = 0) -> Iterator[dict[str, str]]:
    """The options that lead to a store with the bucket `bucket`, at s3:// and at gs://, which takes its time to answer.
    It is a process of its own, because deltalake keeps Python's lock while it opens a file to write."""
    command = [sys.executable, "-m", "tests.log.tables.object_store", str(delay)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"
        account = {"gcs_base_url": endpoint, "disable_oauth": True}
        yield {
            "google_service_account_key": json.dumps(dict.fromkeys(SERVICE_ACCOUNT, "") | account),
            "aws_endpoint": endpoint,
            "aws_allow_http": "true",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "aws_region": "nowhere",
            "aws_conditional_put": "etag",
        }
        process.kill()


def main() -> None:
    handler = type("Handler", (_Handler,), {"objects": {}, "uploads": {}, "delay": float(sys.argv[1])})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
