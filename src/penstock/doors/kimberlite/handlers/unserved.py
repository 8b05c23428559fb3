"""Requests that are decoded but not supported, with alternatives for the client."""

from __future__ import annotations

from typing import Final

from penstock.doors.kimberlite.errors import RequestRefused
from penstock.doors.kimberlite.request_context import KimberliteContext
from penstock.doors.reply import Reply
from penstock.wire.kimberlite import messages as m

INSTEAD: Final = {
    "Consent": "append consents to a stream of their own, and ask for them with a query",
    "Erasure": "give streams with personal data a retention, or encrypt what is about a subject under a key of its own"
    " and destroy that",
    "Export": "export what a query finds",
    "VerifyExport": "compare checksums of what was exported",
    "Breach": "look for it in the audit log, with AuditQuery",
    "MaskingPolicyList": "there are no masking policies: put what is to be hidden into a stream of its own",
}
"""By prefix of the request's name."""


def refuse(_context: KimberliteContext, request: m.Unserved) -> Reply:
    name = type(request).__name__
    advice = next(text for start, text in INSTEAD.items() if name.startswith(start))
    raise RequestRefused(m.ErrorCode.INVALID_REQUEST, f"{name} is not served by Penstock: {advice}")


def refuse_ambiguous(_context: KimberliteContext, request: m.Ambiguous) -> Reply:
    readings = " or ".join(request.readings)
    raise RequestRefused(
        m.ErrorCode.INVALID_REQUEST,
        f"this may be {readings}, by the version of the client that sent it, and nothing so far has told which: send"
        " GetServerInfo first, or let the operator set kimberlite.assume",
    )
