"""The limits, flags and codes that the protocol's page names are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.broker.limits import Limits
from penstock.doors.felix.errors import ADVICE, MAX_TEXT, PAUSE
from penstock.doors.felix.request_context import FelixSettings
from penstock.wire.felix import features, frames
from penstock.wire.felix.codec.binary import MAX_ERROR, MAX_PAYLOADS
from penstock.wire.felix.errors import ErrorCode, Retry
from penstock.wire.felix.routing import MAX_KEY

PAGE = (Path(__file__).parents[3] / "docs" / "protocols" / "felix.md").read_text()
WORDS = " ".join(PAGE.split())


def test_every_limit_in_the_page_is_that_of_the_code() -> None:
    settings = FelixSettings()
    batch = f"{settings.batch_events} (the original: 64), {settings.batch_bytes >> 10} KiB"
    for said in (
        f"A key has {MAX_KEY:,} bytes at most",
        f"text in UTF-8 (at most {MAX_ERROR} bytes)",
        f"has {MAX_PAYLOADS:,} payloads at most",
        f"None is longer than {MAX_TEXT} characters",
        f"A record of any door has at most {Limits().record_bytes:,} bytes",
        f"| `max_frame_bytes` | {settings.max_frame >> 20} MiB |",
        f"| `batch_events`, `batch_bytes` | {batch} |",
        f"| `subscriptions` | {settings.subscriptions} |",
        f"| `slow`, `queue_events` | `{settings.slow}`, {settings.queue_events:,} |",
        f"`server_flags`: of those that the client offered, the ones listed above (`{frames.KNOWN:x}` together)",
    ):
        assert said in WORDS, said


def test_every_feature_in_the_page_is_served_and_every_other_way_round() -> None:
    table = PAGE[PAGE.index("| Feature | |") : PAGE.index("**Keys and partitions.**")]
    assert sum(int(bit, 16) for bit in re.findall(r"^\| `([0-9a-f]+)` \|", table, re.MULTILINE)) == features.SERVED
    assert re.findall(r"^\| `(\d+)` of `_hi`", table, re.MULTILINE) == [str(features.SERVED_EXTENDED)]


def test_every_code_and_its_advice_is_in_the_page() -> None:
    rows = set(re.findall(r"^\| (\d+) `(\w+)` \| `(\w+)`(?:, (\d+) ms)? \|", PAGE, re.MULTILINE))
    assert {(int(number), name) for number, name, *_ in rows} == {(code, code.name.lower()) for code in ErrorCode}
    for _, _, retry, pause in rows:
        assert pause == (str(PAUSE) if retry == "retry_after" else "")
        assert retry.upper() in Retry.__members__
    told = {(advice.code, advice.retry.name.lower()) for advice in ADVICE.values()}
    assert told <= {(ErrorCode(int(number)), retry) for number, _, retry, _ in rows}
