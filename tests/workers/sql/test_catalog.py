"""The catalog of one statement: it stands still, and what the broker refuses comes out as the error that it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.flight.directories import Directory

from penstock.broker.errors import AccessDenied, PositionAhead, QueryError, TableNotFound
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.flight.reading import Reader
from penstock.log.errors import LogFull
from penstock.log.files import OsFiles
from penstock.log.tailer import Tailer
from penstock.workers.read_view_message import to_message
from penstock.workers.rpc import RemoteError
from penstock.workers.sql.catalog import BrokerCatalog
from penstock.workers.sql.rpc_messages import (
    INTERNAL,
    UNEXPECTED,
    Failed,
    Names,
    Opened,
    OpenStream,
    Position,
    failed,
    rebuilt,
)
from penstock.workers.sql.streams import ExpiryScan


class Line:
    """Answers as the broker would, at once."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.refusal: RemoteError | None = None
        self.asked: list[str] = []

    def call(self, name: str, request: Any, reply: type[Any]) -> Any:
        self.asked.append(name)
        if self.refusal is not None:
            raise self.refusal
        broker = self.directory.broker
        if reply is Position:
            return Position(broker.position)
        if reply is Names:
            return Names(["t"])
        read_views = [broker.fetch.read_view(ME, DEFAULT_SCOPE, name) for name in request.names]
        return Opened(
            broker.position,
            [
                OpenStream(
                    to_message(broker, ME, DEFAULT_SCOPE, read_view),
                    read_view.topic.settings.declarations,
                    read_view.topic.position,
                )
                for read_view in read_views
            ],
        )


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    made = Directory(tmp_path / "data")
    made.create("t")
    made.fill("t", 0, 0, 3)
    return made


def catalog_of(line: Line) -> BrokerCatalog:
    reader = Reader(Tailer(OsFiles(str(line.directory.root))), catch_up_seconds=0.05)
    client: Any = line
    return BrokerCatalog(client, reader, ExpiryScan(reader), 1, lambda: None)


def counts(catalog: BrokerCatalog, *names: str) -> dict[str, int]:
    opened = catalog.open(names)
    return {name: sum(map(len, stream.batches(("offset",), None))) for name, stream in opened.items()}


@pytest.mark.parametrize("first", ["head", "open"])
def test_what_a_statement_sees_does_not_change_until_it_asks_for_that(directory: Directory, first: str) -> None:
    catalog = catalog_of(Line(directory))
    if first == "head":
        assert catalog.head() == directory.broker.position
    else:
        assert counts(catalog, "t") == {"t": 3}
    before = directory.broker.position
    directory.fill("t", 0, 3, 2)
    directory.create("new")
    assert catalog.head() == before
    assert counts(catalog, "t", "new") == {"t": 3}
    catalog.refresh()
    assert counts(catalog, "t", "new") == {"t": 5, "new": 0}
    assert catalog.head() == directory.broker.position


def test_many_streams_are_asked_for_in_portions(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.workers.sql.catalog.CHUNK", 2)
    for name in ("a", "b", "c"):
        directory.create(name)
    line = Line(directory)
    assert list(catalog_of(line).open(["a", "b", "c", "t"])) == ["a", "b", "c", "t"]
    assert line.asked == ["sql.open"] * 2


def test_a_refusal_comes_out_as_the_error_that_it_was(directory: Directory) -> None:
    line = Line(directory)
    line.refusal = RemoteError("AccessDenied", "'alice' may not read 't'")
    with pytest.raises(AccessDenied, match="'alice' may not read 't'"):
        catalog_of(line).open(["t"])
    line.refusal = RemoteError(INTERNAL, UNEXPECTED)
    with pytest.raises(QueryError, match="internal error"):
        catalog_of(line).append("t", [b"1"], None, None)


def test_a_statement_that_has_to_end_asks_nothing_more(directory: Directory) -> None:
    line = Line(directory)
    catalog = catalog_of(line)

    def stop() -> None:
        raise QueryError("enough")

    catalog._check = stop
    with pytest.raises(QueryError, match="enough"):
        catalog.names()
    assert line.asked == []


# -- errors on their way


def _sent(error: Exception) -> Failed:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(failed(1, error)), type=Failed)


@pytest.mark.parametrize(
    "error", [TableNotFound("x"), PositionAhead(9, 3), QueryError("it's wrong"), AccessDenied("no"), LogFull("full")]
)
def test_an_error_arrives_as_it_left(error: Exception) -> None:
    sent = _sent(error)
    again = rebuilt(sent.kind, sent.text, sent.fields)
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


def test_what_nobody_expected_is_not_reported() -> None:
    sent = _sent(ZeroDivisionError("in /home/somebody/secret.py"))
    assert (sent.kind, sent.text, sent.fields) == (INTERNAL, UNEXPECTED, {})
    again = rebuilt("NoSuchError", "text")
    assert type(again) is QueryError
