"""Subscribing to a stream. What is delivered, and when, is the business of `Subscriptions`."""

from __future__ import annotations

from penstock.doors.kimberlite.request_context import RequestContext
from penstock.doors.reply import Outcome
from penstock.wire.kimberlite import messages as m


def subscribe(call: RequestContext, request: m.Subscribe) -> Outcome:
    return call.subscriptions.subscribe(call, request)


def credit(call: RequestContext, request: m.SubscribeCredit) -> Outcome:
    return call.subscriptions.credit(call, request)


def unsubscribe(call: RequestContext, request: m.Unsubscribe) -> Outcome:
    return call.subscriptions.unsubscribe(call, request)
