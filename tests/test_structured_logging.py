"""Log lines: the same text and keys for people and as JSON."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.structured_logging import LogFormat, configure_logging

logger = logging.getLogger("penstock.somewhere")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def root() -> Iterator[None]:
    """Leaves the logging of the tests as it was."""
    kept = logging.getLogger()
    handlers, level = kept.handlers[:], kept.level
    yield
    kept.handlers[:] = handlers
    kept.setLevel(level)


def line(form: LogFormat, stream: io.StringIO | None = None, **keys: Any) -> str:
    stream = stream or io.StringIO()
    configure_logging("info", form, stream)
    logger.debug("too much")
    logger.warning("closed: %s", 'idle for "10" s', extra=keys)
    return stream.getvalue()


@pytest.mark.parametrize("form", ["json", "auto"])
def test_elsewhere_than_on_a_terminal_a_line_is_one_json_object(form: LogFormat) -> None:
    said = line(form, peer="10.0.0.1:5000", door="flymq", count=3, other={1, 2})
    found = json.loads(said)
    assert found.pop("timestamp").endswith("Z") and found.pop("other")
    assert found == {
        "event": 'closed: idle for "10" s',
        "level": "warning",
        "logger": "penstock.somewhere",
        "peer": "10.0.0.1:5000",
        "door": "flymq",
        "count": 3,
    }


def test_text_can_be_had_in_a_pipe_too() -> None:
    said = line("text", peer="10.0.0.1:5000")
    assert 'closed: idle for "10" s' in said and "peer=10.0.0.1:5000" in said and "warning" in said
    assert "\x1b" not in said and said.count("\n") == 1


def test_a_terminal_gets_text_with_colours_unless_it_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in line("auto", Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "closed: idle" in line("auto", Terminal()) and "\x1b" not in line("auto", Terminal())


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_error_comes_with_its_traceback(form: LogFormat) -> None:
    stream = io.StringIO()
    configure_logging("info", form, stream)
    try:
        raise ZeroDivisionError("planted")
    except ZeroDivisionError:
        logger.exception("a request failed")
    assert "ZeroDivisionError: planted" in stream.getvalue() and "a request failed" in stream.getvalue()
    assert form == "text" or "ZeroDivisionError: planted" in json.loads(stream.getvalue())["exception"]


def test_text_that_is_no_unicode_is_no_obstacle() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    logger.info("said %s", "\udcff")
    assert json.loads(stream.getvalue())["event"] == "said \udcff"


def test_rich_is_still_there_for_others() -> None:
    line("json")
    import rich

    assert sys.modules["rich"] is rich
