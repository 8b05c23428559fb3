"""Every limit that the protocol's page names is the one of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.limits import Limits
from penstock.broker.names import MAX_NAME_BYTES, MAX_NAME_CHARACTERS, MAX_SCOPE_CHARACTERS
from penstock.broker.security.audit_event import DEFAULT_PAGE, MAX_PAGE
from penstock.broker.subscriptions.cursor import MAX_SPANS
from penstock.doors.kimberlite.handlers import fetch, streams
from penstock.doors.kimberlite.request_context import KimberliteSettings
from penstock.doors.kimberlite.subscriptions import HELD_BYTES, MAX_CREDITS, MAX_SUBSCRIPTIONS
from penstock.wire.kimberlite.frames import MAX_PAYLOAD

PAGE = " ".join((Path(__file__).parents[3] / "docs" / "protocols" / "kimberlite.md").read_text().split())


@pytest.mark.parametrize(
    "sentence",
    [
        f"the bytes of the payload, 0 to {MAX_PAYLOAD:,}",
        f"a length above {MAX_PAYLOAD >> 20} MiB",
        f"A topic's name has 1 to {MAX_NAME_CHARACTERS} characters, {MAX_NAME_BYTES:,} bytes of UTF-8 at most",
        f"A tenant's has 1 to {MAX_SCOPE_CHARACTERS} ASCII letters",
        f"1 to {streams.MAX_EVENTS:,} events and {streams.MAX_BYTES >> 20} MiB, else code 2",
        f"At most {fetch.MAX_EVENTS:,} events; from version 2 on",
        f"`kimberlite.read_bytes` ({KimberliteSettings().read_bytes >> 10} KiB)",
        f"in version 1, {fetch.MAX_BYTES_V1 >> 20} MiB",
        f"A result over {MAX_PAYLOAD >> 20} MiB: code 8",
        f"newest first, at most {MAX_PAGE:,} ({DEFAULT_PAGE} unless asked for more)",
        f"`limits.tenant_connections` ({Limits().tenant_connections:,}, the document's)",
        f"adds (up to 2³² − {2**32 - MAX_CREDITS})",
        f"the broker holds about {HELD_BYTES >> 20} MiB of pushes",
        f"At most {MAX_SUBSCRIPTIONS:,} per connection (code 14)",
        f"A member that holds {MAX_SPANS:,} separate pieces",
    ],
)
def test_a_limit_in_the_page_is_that_of_the_code(sentence: str) -> None:
    assert sentence in PAGE


def test_there_is_no_rate_limit_until_one_is_said() -> None:
    assert not Limits().tenant_requests
    assert "there is none until `tenant_requests_per_second` says one" in PAGE
